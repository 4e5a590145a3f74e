package storeurl

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

func openMemory(_ context.Context, a address) (*Opened, error) {
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	table := memory.NewTable()
	return &Opened{
		New:   func() (changefeed.Store, error) { return table.Store(a.config.Election), nil },
		Close: func() {},
	}, nil
}
