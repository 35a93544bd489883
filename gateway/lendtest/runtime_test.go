package lendtest_test

import (
	"context"

	"github.com/lendcli/lend/localhost/route"
)

// nothing is a host without Connectors.
type nothing struct{}

func (*nothing) Resolve(route.Query) (route.Descriptor, error) {
	return route.Descriptor{}, route.ErrNotFound
}

func (*nothing) Start(context.Context, route.StartRequest) (route.Process, error) {
	return nil, route.ErrNotFound
}
