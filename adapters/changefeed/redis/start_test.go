//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
)

// TestStart_RejectsUnsuitableKeyOrUser checks that Start rejects a key or a user with which the store cannot
// work, with an error that contains the reason.
func TestStart_RejectsUnsuitableKeyOrUser(t *testing.T) {
	server := shared.Get(t)
	operator := connect(t, server.Addr(), nil)
	acl := func(rules ...any) func(*driver.Options) {
		return func(o *driver.Options) {
			o.Username, o.Password = "weak", "secret"
			require.NoError(t, operator.Do(fixture.Context(t), append([]any{"ACL", "SETUSER", "weak", "reset", "on", ">secret"}, rules...)...).Err())
		}
	}
	for name, c := range map[string]struct {
		prepare func(ctx context.Context, key string) error
		change  func(*driver.Options)
		text    string
	}{
		"String":        {prepare: func(ctx context.Context, key string) error { return operator.Set(ctx, key, "x", 0).Err() }, text: "is a string"},
		"OtherHash":     {prepare: func(ctx context.Context, key string) error { return operator.HSet(ctx, key, "name", "x").Err() }, text: "not the record of an election"},
		"WrongPassword": {change: func(o *driver.Options) { o.Username, o.Password = "default", "wrong"; o.Username = "none" }, text: "WRONGPASS"},
		"NoKey":         {change: acl("+@all", "&*", "~another"), text: "permissions"},
		"NoScripts":     {change: acl("+@all", "-@scripting", "&*", "~*"), text: "permissions"},
		"NoPublish":     {change: acl("+@all", "-publish", "&*", "~*"), text: "permissions"},
		"NoChannel":     {change: acl("+@all", "resetchannels", "~*"), text: "permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			key := newKey()
			if c.prepare != nil {
				require.NoError(t, c.prepare(fixture.Context(t), key))
			}
			err := newStore(t, connect(t, server.Addr(), c.change), key).Start(fixture.Context(t))
			fixture.RequireUnsuitable(t, err, c.text)
			t.Log(err)
		})
	}
}

// TestStart_RejectsReplica checks that Start rejects a replica, which does not accept writes.
func TestStart_RejectsReplica(t *testing.T) {
	replica := startReplica(t, startServer(t))
	s := newStore(t, connect(t, replica.Addr(), nil), newKey())
	fixture.RequireUnsuitable(t, s.Start(fixture.Context(t)), "is a slave; use a client of the master")
}

// TestStart_UnreachableServerIsNotUnsuitable checks that the error of Start for a server that is down does
// not wrap ErrUnsuitable.
func TestStart_UnreachableServerIsNotUnsuitable(t *testing.T) {
	s := newStore(t, connect(t, "127.0.0.1:1", nil), newKey())
	err := s.Start(fixture.Context(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	_, err = fixture.Subscribe(t, s).Next(fixture.Context(t))
	require.Error(t, err)
	require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Read(ctx)
	require.Error(t, err)
}
