package queue

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestWhenAnItemIsLost(t *testing.T) {
	held := &delivery{session: 7, handedOut: true, lapses: 3}
	claimed := &delivery{session: 7}
	for name, c := range map[string]struct {
		item  *delivery
		state session.State
		want  error
	}{
		"the session is proven to live":                      {held, session.State{Session: 7, Proven: true, Lapses: 3}, nil},
		"the lease has expired":                              {held, session.State{Session: 7, Lapses: 4}, recipes.ErrLeaseExpired},
		"the lease had expired and is valid again":           {held, session.State{Session: 7, Proven: true, Lapses: 4}, recipes.ErrLeaseExpired},
		"the lease expired before the item was handed out":   {claimed, session.State{Session: 7, Lapses: 1}, nil},
		"the connection has another session":                 {held, session.State{Session: 8, Proven: true, Lapses: 3}, recipes.ErrSessionExpired},
		"the session is lost before the item was handed out": {claimed, session.State{Session: 0}, recipes.ErrSessionExpired},
		"the connection is closed":                           {held, session.State{Session: 7, Closed: true}, recipes.ErrConnClosed},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, c.item.over(c.state), c.want)
		})
	}
}

// An item that was read before its claim was applied does not show this attempt.
func TestEarlyReadCountsOnlyIfItSawTheClaim(t *testing.T) {
	read := func(pzxid int64) *earlyRead {
		r := &earlyRead{send: func() {}, answer: make(chan content, 1)}
		r.answer <- content{stat: &zk.Stat{Pzxid: pzxid}}
		return r
	}
	const claim = 10
	_, ok := read(claim - 1).of(claim)
	require.False(t, ok)
	_, ok = read(claim).of(claim)
	require.True(t, ok)
	_, ok = read(claim + 1).of(claim)
	require.True(t, ok, "another client has changed the item since")
	var none *earlyRead
	_, ok = none.of(claim)
	require.False(t, ok)
}
