//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestStartRefuses: a store that cannot work says so at Start, and what to do.
func TestStartRefuses(t *testing.T) {
	server := shared.Get(t)
	operator := newClient(t, server.Addr(), nil)
	acl := func(rules ...any) func(*driver.Options) {
		return func(o *driver.Options) {
			o.Username, o.Password = "weak", "secret"
			require.NoError(t, operator.Do(bounded(t), append([]any{"ACL", "SETUSER", "weak", "reset", "on", ">secret"}, rules...)...).Err())
		}
	}
	for name, c := range map[string]struct {
		prepare func(ctx context.Context, key string) error
		change  func(*driver.Options)
		says    string
	}{
		"String":        {prepare: func(ctx context.Context, key string) error { return operator.Set(ctx, key, "x", 0).Err() }, says: "is a string"},
		"OtherHash":     {prepare: func(ctx context.Context, key string) error { return operator.HSet(ctx, key, "name", "x").Err() }, says: "not the record of an election"},
		"WrongPassword": {change: func(o *driver.Options) { o.Username, o.Password = "default", "wrong"; o.Username = "none" }, says: "WRONGPASS"},
		"NoKey":         {change: acl("+@all", "&*", "~another"), says: "permissions"},
		"NoScripts":     {change: acl("+@all", "-@scripting", "&*", "~*"), says: "permissions"},
		"NoChannel":     {change: acl("+@all", "resetchannels", "~*"), says: "permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			key := newKey()
			if c.prepare != nil {
				require.NoError(t, c.prepare(bounded(t), key))
			}
			err := newStore(t, newClient(t, server.Addr(), c.change), key).Start(bounded(t))
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			require.ErrorContains(t, err, c.says)
			t.Log(err)
		})
	}
}

// TestTrapReplica: a replica, which takes no writes, is refused.
func TestTrapReplica(t *testing.T) {
	server := shared.Get(t)
	replica, err := dbserver.Redis("--replicaof", "127.0.0.1 "+server.Port())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, replica.Close()) })
	err = newStore(t, newClient(t, replica.Addr(), nil), newKey()).Start(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "is a slave; use a client of the master")
}

// TestUnreachable: a server that is down is no unsuitable store.
func TestUnreachable(t *testing.T) {
	s := newStore(t, newClient(t, "127.0.0.1:1", nil), newKey())
	err := s.Start(bounded(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	_, err = subscribe(t, s).Next(bounded(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Read(ctx)
	require.Error(t, err)
}
