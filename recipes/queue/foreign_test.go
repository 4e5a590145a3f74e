package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestQueue_DeliversItemsDespiteForeignZnodes checks that all items are delivered, that no call ends with an
// error, and that dead letters can be listed, whatever another program writes into one item, claim or dead
// letter, or beside them.
func TestQueue_DeliversItemsDespiteForeignZnodes(t *testing.T) {
	const item = "/jobs/queue-0000000000"
	type foreign struct {
		*bubble.Test
		conn *zk.Conn
	}
	create := func(path string, data []byte, flags int32, acl []zk.ACL) func(f foreign) {
		return func(f foreign) {
			_, err := f.conn.Create(path, data, flags, acl)
			require.NoError(f, err)
		}
	}
	good := encode([]byte("foreign"))
	with := func(path string, data []byte) func(f foreign) { return create(path, data, 0, openACL) }
	all := func(steps ...func(f foreign)) func(f foreign) {
		return func(f foreign) {
			for _, s := range steps {
				s(f)
			}
		}
	}
	const (
		delivered = "delivered"
		dead      = "dead letter"
		unread    = "unreadable dead letter"
		remains   = "remains in the queue" // the znode is not an item, or its attempts cannot be counted
	)
	for name, c := range map[string]struct {
		write   func(f foreign)
		outcome string
		layout  recipe.Layout
	}{
		"as documented":            {write: with(item, good), outcome: delivered},
		"garbage":                  {write: with(item, []byte("garbage")), outcome: dead},
		"no data":                  {write: with(item, nil), outcome: dead},
		"NUL bytes":                {write: with(item, make([]byte, 100)), outcome: dead},
		"no payload":               {write: with(item, encode()), outcome: delivered},
		"truncated":                {write: with(item, good[:len(good)-3]), outcome: dead},
		"length too large":         {write: with(item, append(good[:5:5], 0xff, 0xff, 0xff, 0xff, 2)), outcome: dead},
		"larger than the buffer":   {write: with(item, encode(make([]byte, 100<<10))), outcome: unread},
		"garbage, and too large":   {write: with(item, make([]byte, 100<<10)), outcome: unread},
		"as large as servers take": {write: with(item, make([]byte, 1<<20-200)), outcome: unread},
		"not readable":             {write: create(item, good, 0, zk.WorldACL(zk.PermAll&^zk.PermRead)), outcome: unread},
		"attempt cannot be counted": {
			write: create(item, good, 0, zk.WorldACL(zk.PermRead)), outcome: remains,
		},
		"attempt cannot be deleted": {
			write: create(item, good, 0, zk.WorldACL(zk.PermRead|zk.PermCreate)), outcome: remains,
		},
		"no right at all":           {write: create(item, good, 0, zk.DigestACL(zk.PermAll, "some", "one")), outcome: remains},
		"ephemeral":                 {write: create(item, good, zk.FlagEphemeral, openACL), outcome: remains},
		"attempt exists":            {write: all(with(item, good), with(item+"/attempt", nil)), outcome: remains},
		"other children":            {write: all(with(item, good), with(item+"/x", nil)), outcome: dead},
		"garbage with children":     {write: all(with(item, nil), with(item+"/x", nil)), outcome: dead},
		"due time is garbage":       {write: with("/jobs/queue-|x|0000000000", good), outcome: delivered},
		"due time is too great":     {write: with("/jobs/queue-|FFFFFFFFFFFFFFFFFFFF|0000000000", good), outcome: remains},
		"due time is negative":      {write: with("/jobs/queue-|-1|0000000000", good), outcome: delivered},
		"name is long":              {write: with("/jobs/queue-|"+strings.Repeat("x", 10_000)+"|0000000000", good), outcome: delivered},
		"name has special signs":    {write: with("/jobs/queue-|ü %s|0000000000", good), outcome: delivered},
		"name is not that of items": {write: with("/jobs/queue-x", good), outcome: remains},
		"sequence is negative":      {write: with("/jobs/queue--0000000001", good), outcome: delivered},
		"claim is persistent":       {write: all(with(item, good), with("/jobs-claims/queue-0000000000", nil)), outcome: remains},
		"claim without item":        {write: with("/jobs-claims/queue-0000000099", nil), outcome: remains},
		"claim without rights": {
			write:   all(with(item, good), create("/jobs-claims/queue-0000000000", nil, zk.FlagEphemeral, zk.DigestACL(zk.PermAll, "some", "one"))),
			outcome: remains,
		},
		"dead letter exists": {
			write: func(f foreign) {
				with(item, nil)(f)
				_, stat, err := f.conn.Exists(item)
				require.NoError(f, err)
				with("/jobs-dead/"+letterName("queue-0000000000", stat.Czxid), nil)(f)
			},
			outcome: remains,
		},
		"dead letter without reason":  {write: with("/jobs-dead/queue-0000000000-1", nil), outcome: remains},
		"reason is garbage":           {write: all(with("/jobs-dead/queue-0000000000-1", nil), with("/jobs-dead/queue-0000000000-1/why", []byte("{"))), outcome: dead},
		"reason is too large":         {write: all(with("/jobs-dead/queue-0000000000-1", nil), with("/jobs-dead/queue-0000000000-1/why", make([]byte, 100<<10))), outcome: dead},
		"dead letter is too large":    {write: all(with("/jobs-dead/queue-0000000000-1", make([]byte, 100<<10)), with("/jobs-dead/queue-0000000000-1/why", nil)), outcome: unread},
		"dead letter is not readable": {write: all(create("/jobs-dead/queue-0000000000-1", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermRead)), with("/jobs-dead/queue-0000000000-1/why", nil)), outcome: unread},
		"blocked item is missing": {
			write:   all(with("/jobs-dead/queue-0000000000-1", nil), with("/jobs-dead/queue-0000000000-1/why", []byte(`{"item":"queue-0000000000","inPlace":true}`))),
			outcome: unread,
		},
		"kazoo: no data":   {write: with("/jobs/entries/entry-100-0000000000", nil), outcome: delivered, layout: recipe.Kazoo},
		"kazoo: garbage":   {write: with("/jobs/entries/entry-100-0000000000", make([]byte, 100)), outcome: delivered, layout: recipe.Kazoo},
		"kazoo: name":      {write: with("/jobs/entries/entry-xyz-0000000000", nil), outcome: remains, layout: recipe.Kazoo},
		"kazoo: too large": {write: with("/jobs/entries/entry-100-0000000000", make([]byte, 100<<10)), outcome: unread, layout: recipe.Kazoo},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *bubble.Test) {
				f := foreign{h, h.Connect(zk.WithMaxBufferSize(0))}
				defer f.conn.Close()
				cfg := config{maxAttempts: 3}
				connect := func() *Queue { return queueOn(h, h.Connect(), cfg, recipe.WithLayout(c.layout)) }
				producer := connect()
				require.NoError(h, producer.Create(h.Context()))
				require.NoError(h, producer.makeDead(h.Context()))
				c.write(f)
				total := producer.childCount(h)

				ctx, cancel := context.WithCancel(h.Context())
				defer cancel()
				counts := map[string]int{}
				results := make(chan string, 1000)
				consumers := []*Queue{connect(), connect(), connect()}
				for _, q := range consumers {
					go func() {
						for i, err := range q.Items(ctx) {
							require.NoError(h, err)
							results <- string(i.Data())
							if err := i.Ack(); err != nil {
								_ = i.Return(err)
							}
						}
					}()
				}
				for round := range 2 { // the first time before, the second time after the attempts to process the foreign item
					for i := range 10 {
						putItems(h, producer, fmt.Sprintf("item %d %d", round, i))
					}
					bubble.Advance(10 * time.Second)
				}
				close(results)
				for r := range results {
					counts[r]++
				}
				for round := range 2 {
					for i := range 10 {
						require.Equal(h, 1, counts[fmt.Sprintf("item %d %d", round, i)])
					}
				}
				letters, err := producer.DeadLetters(h.Context())
				require.NoError(h, err)
				switch c.outcome {
				case delivered:
					require.Len(h, counts, 21)
					require.Zero(h, producer.childCount(h))
				case remains:
					require.Len(h, counts, 20)
					require.Equal(h, total, producer.childCount(h))
				case dead, unread:
					require.Len(h, letters, 1)
					require.Equal(h, c.outcome == unread, letters[0].Err != nil, "%+v", letters[0])
					err := producer.Discard(h.Context(), letters[0])
					if errors.Is(err, zk.ErrNotEmpty) {
						require.NoError(h, f.conn.Delete(item+"/x", -1))
						err = producer.Discard(h.Context(), letters[0])
					}
					require.NoError(h, err)
					require.Zero(h, producer.childCount(h))
				}
				if c.outcome != dead && c.outcome != unread {
					require.Empty(h, letters)
				}
			})
		})
	}
}

// childCount returns the number of children that the directory of the items has.
func (q *Queue) childCount(h *bubble.Test) int {
	n, err := q.Len(h.Context())
	require.NoError(h, err)
	return n
}

// TestQueue_DeliversReusedNameAfterDataLoss checks that a new item is delivered without delay if it has the
// name of an item that the consumer skipped before the servers lost their data.
func TestQueue_DeliversReusedNameAfterDataLoss(t *testing.T) {
	run(t, func(h *bubble.Test) {
		producer, q := queueOn(h, h.Connect(zk.WithMaxBufferSize(0)), config{}), newQueue(h)
		putItems(h, producer, string(make([]byte, 100<<10)))
		taking := startTake(h, q)
		bubble.Advance(10 * time.Minute)
		// The first listing after the data loss contains the name.
		h.Server.Before(zktest.Match{Op: zktest.OpGetChildren2, Path: "/jobs", Nth: 1}, func(r *zktest.Request) zktest.Verdict {
			time.Sleep(5 * time.Second)
			return zktest.Pass(r)
		})
		h.Server.Restart(zktest.LoseTree)
		bubble.Advance(3 * time.Second)
		putItems(h, producer, "readable")
		bubble.Advance(5 * time.Second)
		select {
		case item := <-taking:
			require.Equal(h, "queue-0000000000", item.ID())
			requireAck(h, item)
		default:
			require.Fail(h, "the item was not delivered")
		}
	})
}
