package line

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// A line's node that is missing was deleted by a client if it was seen in this session.
// Otherwise the servers may have lost it.
func TestNodeIsMissing(t *testing.T) {
	conn := new(zk.Conn) // its session is 0
	make := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		place place
		want  error
	}{
		"seen in this session":                 {place{Config: &Config{Conn: conn}}, zkerror.ErrElectionOver},
		"seen in another session":              {place{Config: &Config{Conn: conn, DirSession: 5}}, zkerror.ErrSessionExpired},
		"own znode of another session":         {place{Config: &Config{Conn: conn}, session: 5}, zkerror.ErrSessionExpired},
		"can be made":                          {place{Config: &Config{Conn: conn, MakeDir: make}}, zkerror.ErrDeleted},
		"can be made, but the session is over": {place{Config: &Config{Conn: conn, MakeDir: make}, session: 5}, zkerror.ErrSessionExpired},
	} {
		require.ErrorIs(t, c.place.noDir(), c.want, name)
	}
}
