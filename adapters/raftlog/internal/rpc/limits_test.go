package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestCheckClient_EnforcesEachLimit checks that checkClient applies every limit, and that a connection without requests
// in progress can make a small request whatever other clients occupy.
func TestCheckClient_EnforcesEachLimit(t *testing.T) {
	const mib = 1 << 20
	full := load{conns: 1024, streams: 256, calls: 8 << 10, memory: 64 * mib}
	for name, c := range map[string]struct {
		own, address, total, more load
		exceeds                   string // a text that the error must contain; empty if no error is expected
	}{
		"first":                        {more: load{conns: 1, streams: 1, calls: 1, memory: 17 * mib}},
		"connection of the address":    {address: load{conns: 256}, more: load{conns: 1}, exceeds: "256 connections of one address"},
		"last connection":              {address: load{conns: 255}, total: load{conns: 1023}, more: load{conns: 1}},
		"connection of all":            {total: full, more: load{conns: 1}, exceeds: "1024 connections of all clients"},
		"stream of the address":        {address: load{streams: 64}, more: load{conns: 1, streams: 1}, exceeds: "64 streams of one address"},
		"stream of all":                {total: load{streams: 256}, more: load{conns: 1, streams: 1}, exceeds: "256 streams of all clients"},
		"calls while streams are used": {own: load{calls: 16}, address: load{streams: 64, conns: 256}, total: load{streams: 256}, more: load{calls: 1}},
		"own calls":                    {own: load{calls: 15}, address: full, total: full, more: load{calls: 1}},
		"call of the address":          {own: load{calls: 16}, address: load{calls: 4 << 10}, more: load{calls: 1}, exceeds: "4096 calls in progress of one address"},
		"call of all":                  {own: load{calls: 16}, total: full, more: load{calls: 1}, exceeds: "8192 calls in progress of all clients"},
		"own small request":            {address: full, total: full, more: load{memory: freeFrame}},
		"second small request":         {own: load{memory: 1}, address: full, total: full, more: load{memory: freeFrame - 1}},
		"many small requests":          {own: load{memory: freeFrame}, total: full, more: load{memory: 1}, exceeds: "67108864 bytes of requests and replies in progress of all clients"},
		"large request":                {total: load{memory: 63 * mib}, more: load{memory: 1*mib + 1}, exceeds: "of all clients"},
		"of the connection":            {own: load{memory: 17 * mib}, more: load{memory: 17 * mib}, exceeds: "of one connection"},
		"of the address":               {address: load{memory: 20 * mib}, more: load{memory: 17 * mib}, exceeds: "of one address"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkClient(c.own, c.address, c.total, c.more)
			if c.exceeds == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, api.ErrBusy)
			require.ErrorContains(t, err, c.exceeds)
		})
	}
}

// TestUsage_IsFreedAfterClose checks that the load of a connection is removed from all totals when the
// connection is closed.
func TestUsage_IsFreedAfterClose(t *testing.T) {
	u := usage{addresses: map[string]load{}}
	a, err := u.addClient("a", load{conns: 1})
	require.NoError(t, err)
	b, err := u.addClient("a", load{conns: 1, streams: 1})
	require.NoError(t, err)
	require.NoError(t, a.addLoad(load{memory: 17 << 20}))
	require.NoError(t, b.addLoad(load{memory: 17 << 20}))
	require.ErrorIs(t, b.addLoad(load{memory: 1 << 20}), api.ErrBusy)
	b.release(load{memory: 17 << 20})
	require.NoError(t, b.addLoad(load{calls: 1}))
	a.close()
	require.Equal(t, load{conns: 1, streams: 1, calls: 1}, u.total)
	b.close()
	require.Equal(t, load{}, u.total)
	require.Empty(t, u.addresses)
}
