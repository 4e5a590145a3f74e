//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestArguments: what cannot be used is refused by New.
func TestArguments(t *testing.T) {
	client := newClient(t, "127.0.0.1:1", nil)
	ring := driver.NewRing(&driver.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	for name, try := range map[string]func() (*redis.Store, error){
		"NoClient":      func() (*redis.Store, error) { return redis.New(nil, "k") },
		"NilClient":     func() (*redis.Store, error) { return redis.New((*driver.Client)(nil), "k") },
		"NilCluster":    func() (*redis.Store, error) { return redis.New((*driver.ClusterClient)(nil), "k") },
		"Ring":          func() (*redis.Store, error) { return redis.New(ring, "k") },
		"EmptyKey":      func() (*redis.Store, error) { return redis.New(client, "") },
		"NulInKey":      func() (*redis.Store, error) { return redis.New(client, "\x00") },
		"NilOption":     func() (*redis.Store, error) { return redis.New(client, "k", nil) },
		"QuietTooShort": func() (*redis.Store, error) { return redis.New(client, "k", redis.WithQuiet(0)) },
		"EmptyChannel":  func() (*redis.Store, error) { return redis.New(client, "k", redis.WithChannel("")) },
		"OwnChannel":    func() (*redis.Store, error) { return redis.New(client, "k", redis.WithChannel("changefeed:0:k")) },
	} {
		_, err := try()
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption, name)
	}
}

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

// TestOtherData: what came to the key after Start is neither replaced nor believed.
func TestOtherData(t *testing.T) {
	client, key := newClient(t, shared.Get(t).Addr(), nil), newKey()
	s := newStore(t, client, key)
	require.NoError(t, s.Start(bounded(t)))
	require.NoError(t, client.Set(bounded(t), key, "precious", 0).Err())
	require.ErrorIs(t, s.Create(bounded(t), blank), changefeed.ErrUnsuitable)
	_, err := s.Read(bounded(t))
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	value, err := client.Get(bounded(t), key).Result()
	require.NoError(t, err)
	require.Equal(t, "precious", value)
}

// TestClosedClient: a client that was closed too early is told as such.
func TestClosedClient(t *testing.T) {
	client := driver.NewClient(&driver.Options{Addr: shared.Get(t).Addr()})
	s, r := created(t, client, newKey())
	require.NoError(t, client.Close())
	_, err := s.Heartbeat(bounded(t), r, r)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	require.ErrorContains(t, err, "the client was closed")
}

// TestTheClientIsTheCallers: it outlives the store, and its options are as they were.
func TestTheClientIsTheCallers(t *testing.T) {
	client := newClient(t, shared.Get(t).Addr(), nil)
	before := *client.Options()
	s, r := created(t, client, newKey())
	tells(t, subscribe(t, s), "the record", r.Version)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(bounded(t)).Err())
	after := *client.Options()
	before.Dialer, after.Dialer = nil, nil // functions cannot be compared
	before.DialerRetryBackoff, after.DialerRetryBackoff = nil, nil
	require.Equal(t, before, after)
}

// TestRefusesText: what would come back another is refused, and nothing is written.
func TestRefusesText(t *testing.T) {
	s, r := created(t, newClient(t, shared.Get(t).Addr(), nil), newKey())
	next := r
	next.Leader = "no UTF-8 \xff"
	_, err := s.Heartbeat(bounded(t), r, next)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	beat(t, s, r)
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
