package nats

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestSafetyTable compares Start with each row of the documentation's table.
func TestSafetyTable(t *testing.T) {
	t.Parallel()
	server := shared.Get(t)
	var replicated []*dbserver.Server
	starts := func(t *testing.T, server *dbserver.Server, bucket, release string, accepted []changefeed.Risk) error {
		s := newStore(t, connect(t, server.Addr()), bucket, WithRisk(accepted...))
		if release != "" {
			s.release = func() string { return release }
		}
		return s.Start(ctx(t))
	}
	// with is a case with a bucket that is changed before it is made.
	with := func(change func(*jetstream.StreamConfig)) safetytable.Case {
		return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			js, err := jetstream.New(connect(t, server.Addr()))
			require.NoError(t, err)
			bucket := place()
			config := jetstream.StreamConfig{
				Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Storage: jetstream.FileStorage,
				MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: true,
			}
			change(&config)
			_, err = js.CreateStream(ctx(t), config)
			require.NoError(t, err)
			return starts(t, server, bucket, "", accepted)
		}}
	}
	// of is a case with a replicated bucket, on servers that say that they are of a release.
	of := func(release string) safetytable.Case {
		return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			return starts(t, replicated[0], "first", release, accepted)
		}}
	}
	replicated = cluster(t)
	safetytable.Check(t, "NATS", map[string]safetytable.Case{
		"a bucket with one replica in files":                         with(func(*jetstream.StreamConfig) {}),
		"a bucket with several replicas, on servers 2.9.21 or newer": of("2.10.29"),
		"a bucket with several replicas, on older servers":           of("2.9.20"),
		"a bucket in memory":                                         with(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
		"a bucket with a TTL":                                        with(func(c *jetstream.StreamConfig) { c.MaxAge = 1 << 40 }),
		"a mirror": with(func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "KV_other"}
		}),
		"a stream that discards values when it is full": with(func(c *jetstream.StreamConfig) {
			c.Discard, c.MaxMsgs = jetstream.DiscardOld, 10
		}),
		"a crash of the server's process": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			own, err := dbserver.NATS()
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, own.Close()) })
			conn, bucket := connect(t, own.Addr()), place()
			s, r := created(t, conn, bucket)
			r = beat(t, s, r)
			require.NoError(t, own.Restart())
			require.Eventually(t, func() bool {
				now, err := s.Read(ctx(t))
				return err == nil && now.Version == r.Version
			}, closes*5, closes/100)
			return starts(t, own, bucket, "", accepted)
		}},
		"a crash of the server's machine": {NotChecked: "the server does not show sync_interval to its clients"},
	})
}
