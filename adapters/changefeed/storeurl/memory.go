package storeurl

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

func openMemory(a address) (connector, error) {
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	return func(context.Context) (*Opener, error) {
		table := memory.NewTable()
		return newOpener(
			func() (changefeed.Store, error) { return table.Store(a.config.Election), nil },
			func() error { return nil },
		), nil
	}, nil
}
