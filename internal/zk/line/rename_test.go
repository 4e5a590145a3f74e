package line

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The rename was carried out, and the end of the place, at which its answer is given up,
// comes first: what goes with the own znode goes with the new one.
func TestRenameGivenUpAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 4 * time.Second
		conn, _, err := zktest.Start(t).Connect(timeout)
		require.NoError(t, err)
		synctest.Wait()
		for _, path := range []string{"/dir", "/dir/mark", "/dir/a-__READ__0000000000"} {
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		p := &place{
			Config: &Config{Conn: conn, Dir: "/dir", Naming: CuratorWrite, Log: slog.New(slog.DiscardHandler), Parting: func(error) []any {
				return []any{&zk.DeleteRequest{Path: "/dir/mark", Version: -1}}
			}},
			sub:      session.Subscribe(conn, timeout),
			prefixes: []string{"a-__WRIT__", "a-__READ__"},
		}
		defer p.sub.Close()
		p.setOwn("a-__WRIT__0000000000")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.renaming = &renaming{Rename{CuratorRead, make(chan error, 1)}, "/dir/a-__READ__0000000000", "a-__READ__", func() {}, nil}
		reason := p.finishRenaming(ctx, request.Answer[renamed]{Err: context.Canceled})
		require.ErrorIs(t, reason, context.Canceled)
		require.NoError(t, p.remove(reason, true))
		left, _, err := conn.Children("/dir")
		require.NoError(t, err)
		require.Empty(t, left)
		synctest.Wait()
	})
}
