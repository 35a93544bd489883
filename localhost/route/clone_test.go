package route

import (
	"reflect"
	"testing"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

// fill sets every field that can refer to something, so that a field added to the
// contract later is covered by itself.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Map, reflect.Interface, reflect.Chan, reflect.Func:
		panic("teach fill and cloneContract about " + v.Kind().String())
	default:
	}
}

func requireNothingShared(t *testing.T, a, b reflect.Value, path string) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer:
		require.NotEqual(t, a.Pointer(), b.Pointer(), path)
		requireNothingShared(t, a.Elem(), b.Elem(), path)
	case reflect.Slice:
		require.NotEqual(t, a.Pointer(), b.Pointer(), path)
		for i := range a.Len() {
			requireNothingShared(t, a.Index(i), b.Index(i), path+"[]")
		}
	case reflect.Struct:
		for i := range a.NumField() {
			requireNothingShared(t, a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)
		}
	default:
	}
}

func TestCloneContract(t *testing.T) {
	t.Parallel()
	var c argv.Contract
	fill(reflect.ValueOf(&c).Elem())
	clone := cloneContract(c)
	require.Equal(t, c, clone)
	requireNothingShared(t, reflect.ValueOf(c), reflect.ValueOf(clone), "contract")
	require.Equal(t, argv.Contract{}, cloneContract(argv.Contract{}), "nil stays nil")
	empty := argv.Contract{Commands: []argv.Command{{Parameters: []argv.Parameter{{Schemas: []argv.Schema{{Enum: []string{}}}}}}}}
	require.NotNil(t, cloneContract(empty).Commands[0].Parameters[0].Schemas[0].Enum, "present but empty stays present")
}

func TestCloneProbe(t *testing.T) {
	t.Parallel()
	var p Probe
	fill(reflect.ValueOf(&p).Elem())
	clone := cloneProbe(&p)
	require.Equal(t, &p, clone)
	requireNothingShared(t, reflect.ValueOf(&p), reflect.ValueOf(clone), "probe")
	require.Nil(t, cloneProbe(nil))
}
