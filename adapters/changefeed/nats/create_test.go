package nats

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestBucketMadeAtOnce: many make the same bucket at the same time, each on a connection of
// its own, and to all of them it is there then.
func TestBucketMadeAtOnce(t *testing.T) {
	server := shared.Get(t)
	const creators, rounds = 8, 10
	conns := make([]func(bucket string) *Store, creators)
	for i := range conns {
		conn := connect(t, server.Addr())
		conns[i] = func(bucket string) *Store { return newStore(t, conn, bucket) }
	}
	for range rounds {
		bucket := place()
		errs := make([]error, creators)
		var all sync.WaitGroup
		for i, newStore := range conns {
			s := newStore(bucket)
			all.Go(func() { errs[i] = s.Create(ctx(t), changefeed.Record{Epoch: "e", Seq: 1}) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// TestSubjectsOfAnother: a stream that has the bucket's subjects keeps it from being made,
// and nobody waits for it to go.
func TestSubjectsOfAnother(t *testing.T) {
	conn := connect(t, shared.Get(t).Addr())
	bucket := place()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	_, err = js.CreateStream(ctx(t), jetstream.StreamConfig{Name: "other-" + bucket, Subjects: []string{"$KV." + bucket + ".>"}})
	require.NoError(t, err)
	err = newStore(t, conn, bucket).Create(ctx(t), changefeed.Record{Epoch: "e", Seq: 1})
	require.True(t, isOverlap(err), "%v", err)
}
