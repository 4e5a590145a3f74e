package nats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	t.Parallel()
	server := shared.Get(t)
	var members []*dbserver.Server
	start := func(t *testing.T, server *dbserver.Server, bucket, release string, accepted []changefeed.Risk) error {
		s := newStore(t, connect(t, server.Addr()), bucket, WithRisk(accepted...))
		if release != "" {
			s.release = func() string { return release }
		}
		return s.Start(fixture.Context(t))
	}
	// bucketCase returns a case with a bucket. change modifies the configuration of the bucket.
	bucketCase := func(change func(*jetstream.StreamConfig)) fixture.SafetyCase {
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			js, err := jetstream.New(connect(t, server.Addr()))
			require.NoError(t, err)
			bucket := newBucket()
			config := jetstream.StreamConfig{
				Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Storage: jetstream.FileStorage,
				MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: true,
			}
			change(&config)
			_, err = js.CreateStream(fixture.Context(t), config)
			require.NoError(t, err)
			return start(t, server, bucket, "", accepted)
		}}
	}
	// replicatedCase returns a case with a replicated bucket, on servers that report a release.
	replicatedCase := func(release string) fixture.SafetyCase {
		return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			return start(t, members[0], "first", release, accepted)
		}}
	}
	members = startCluster(t)
	fixture.CheckSafety(t, "NATS", map[string]fixture.SafetyCase{
		"a bucket with one replica in files":                         bucketCase(func(*jetstream.StreamConfig) {}),
		"a bucket with several replicas, on servers 2.9.21 or newer": replicatedCase("2.10.29"),
		"a bucket with several replicas, on older servers":           replicatedCase("2.9.20"),
		"a bucket in memory":                                         bucketCase(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }),
		"a bucket with a TTL":                                        bucketCase(func(c *jetstream.StreamConfig) { c.MaxAge = 1 << 40 }),
		"a mirror": bucketCase(func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "KV_other"}
		}),
		"a stream that discards values when it is full": bucketCase(func(c *jetstream.StreamConfig) {
			c.Discard, c.MaxMsgs = jetstream.DiscardOld, 10
		}),
		"a crash of the server's process": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			server := startServer(t)
			conn, bucket := connect(t, server.Addr()), newBucket()
			s, r := createRecord(t, conn, bucket)
			r = fixture.Heartbeat(t, s, r)
			require.NoError(t, server.Restart())
			require.Eventually(t, func() bool {
				now, err := s.Read(fixture.Context(t))
				return err == nil && now.Version == r.Version
			}, fixture.Patience, 10*time.Millisecond)
			return start(t, server, bucket, "", accepted)
		}},
		"a crash of the server's machine": {NotChecked: "the server does not show sync_interval to its clients"},
	})
}
