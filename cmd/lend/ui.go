package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/lendcli/lend/gateway/ownerfile"
)

// What each stream is for: stdout holds the result and nothing else; errors and
// hints go to stderr as "lend: error: …" and "lend: hint: …", lower case, without
// a full stop. With --json, stdout holds one JSON object or JSON lines, failures
// included, which are told to people first; but where stdout is a command's (lend run,
// ops attach, connector try), the object is the last line of stderr.

const jsonSchema = 1

// app is one execution of the command line.
type app struct {
	args        []string
	in          io.Reader
	out, err    io.Writer
	json        bool
	dir         string          // --dir
	stopSignals func()          // gives the signals back to their defaults
	late        error           // of what cobra expects no error of
	noted       map[string]bool // by noteOnce

	given                                      *descriptors
	passphrase, firstPassphrase, newPassphrase func() ([]byte, error) // asked for once
}

func newApp(args []string, in io.Reader, out, err io.Writer) *app {
	a := &app{args: args, in: in, out: out, err: err, stopSignals: func() {}}
	a.give(nil)
	return a
}

// give has the app read the descriptors that the program was started with.
func (a *app) give(d *descriptors) {
	a.given = d
	a.passphrase, a.firstPassphrase, a.newPassphrase = sync.OnceValues(d.askOnce), sync.OnceValues(d.askFirst), sync.OnceValues(d.askNew)
}

// statusError ends the program with a code and no further words.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// usageError is a mistake in the command line or in a file of the owner's: exit
// status 2.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(hint, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), hint: hint}
}

// hinted is a failure with the one command or action that comes next.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

func hintf(hint, format string, args ...any) error {
	return &hinted{err: fmt.Errorf(format, args...), hint: hint}
}

// fail shows err and returns the exit status.
func (a *app) fail(err error) int {
	code, hint := 1, ""
	var usage *usageError
	var withHint *hinted
	var unsafe *ownerfile.UnsafeError
	switch {
	case errors.As(err, &usage):
		code, hint = 2, usage.hint
	case errors.As(err, &withHint):
		hint = withHint.hint
	case errors.As(err, &unsafe):
		code, hint = 2, unsafe.Hint
	default:
		if hint = secretHint(err); hint == "" {
			hint = adviceOf(err)
		}
	}
	a.problem(err.Error(), hint)
	if a.json {
		_ = a.printJSON(struct {
			SchemaVersion int    `json:"schemaVersion"`
			Error         string `json:"error"`
			Hint          string `json:"hint,omitempty"`
		}{jsonSchema, withoutUsers(err.Error()), withoutUsers(hint)})
	}
	return code
}

// problem shows an error and a hint on stderr.
func (a *app) problem(text, hint string) {
	_, _ = fmt.Fprintf(a.err, "lend: error: %s\n", harmless(withoutUsers(text)))
	if hint != "" {
		_, _ = fmt.Fprintf(a.err, "lend: hint: %s\n", harmless(withoutUsers(hint)))
	}
}

// harmless escapes what would act on a terminal: errors of the system hold paths as
// they are, and those of an archive the names in it. Lines and tabs stay.
func harmless(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// withoutUsers takes the user and the password out of the URLs of a message: what was
// given for an address may be wrong, and is repeated then, but not the secret in it.
func withoutUsers(s string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "://")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		end := strings.IndexFunc(after, func(r rune) bool { return r == '"' || unicode.IsSpace(r) })
		if end < 0 {
			end = len(after)
		}
		b.WriteString("://" + withoutUser(after[:end]))
		s = after[end:]
	}
}

// withoutUser is a URL from its host on. A password that ends what is read of the host, as
// one with a slash, makes what follows a colon no port: it may go on up to the last @.
func withoutUser(rest string) string {
	host := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host = rest[:i]
	}
	at := strings.LastIndexByte(host, '@')
	if at < 0 {
		if _, port, ok := strings.Cut(host, ":"); !ok || strings.Trim(port, "0123456789") == "" || strings.HasPrefix(host, "[") {
			return rest
		}
		at = strings.LastIndexByte(rest, '@')
	}
	if at < 0 {
		return rest
	}
	return "xxxxx@" + rest[at+1:]
}

// say writes one line of result.
func (a *app) say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, harmless(fmt.Sprintf(format, args...)))
	return err
}

// note writes one line for people, beside the result.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintln(a.err, harmless(withoutUsers(fmt.Sprintf(format, args...))))
}

// noteOnce is note of what a command may come to several times.
func (a *app) noteOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.noted[text] {
		return
	}
	if a.noted == nil {
		a.noted = map[string]bool{}
	}
	a.noted[text] = true
	a.note("%s", text)
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// show prints v as JSON if that was asked for, and text otherwise.
func (a *app) show(v any, text func() error) error {
	if a.json {
		return a.printJSON(v)
	}
	return text()
}

// table prints rows in columns; the first row is the heading. No line ends in blanks.
func (a *app) table(rows [][]string) error {
	var b strings.Builder // it returns no errors
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, harmless(strings.Join(r, "\t")))
	}
	_ = w.Flush()
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(a.out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// count is a number and what it counts.
func count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}

func bytesCount[N int | int64 | uint64](n N) string { return count(n, "byte", "bytes") }

// isTerminal tells whether a stream is a character device, and not the null device.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
