package barrier

import (
	"context"
	"math"
	mathrand "math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// roundAttendance counts, for each round, the participants that have entered and left.
type roundAttendance struct {
	mu      sync.Mutex
	entered map[int64]int // number of participants whose Enter has returned
	left    map[int64]int // number of participants whose Leave has returned
}

func newAttendance() *roundAttendance {
	return &roundAttendance{entered: map[int64]int{}, left: map[int64]int{}}
}

// TestDouble_AllEnterBeforeAnyLeaves checks that no participant leaves a round before all have entered.
func TestDouble_AllEnterBeforeAnyLeaves(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		const n, rounds = 3, 4
		counts := newAttendance()
		var wg sync.WaitGroup
		for id := range n {
			d := newDouble(w, w.Connect(), n)
			wg.Go(func() {
				for i := range int64(rounds) {
					time.Sleep(time.Duration(id) * time.Second) // let each participant arrive later than the previous one
					r, err := d.Enter(w.Context())
					require.NoError(w, err)
					require.Equal(w, i, r.Number())
					counts.mu.Lock()
					counts.entered[i]++
					require.Zero(w, counts.left[i], "a participant has left before all have entered")
					counts.mu.Unlock()
					require.NoError(w, r.Err())
					require.NoError(w, r.Leave(w.Context()))
					require.ErrorIs(w, r.Err(), recipes.ErrReleased)
					counts.mu.Lock()
					require.Equal(w, n, counts.entered[i])
					counts.left[i]++
					counts.mu.Unlock()
					require.NoError(w, r.Leave(w.Context()), "repeated")
				}
			})
		}
		wg.Wait()
		require.Equal(w, "/\n  app container\n    gate \"4\"\n", w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}

// TestDouble_AdmitsSurplusParticipantsToLaterRounds checks that a participant that arrives after a round is
// complete enters a later round.
func TestDouble_AdmitsSurplusParticipantsToLaterRounds(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		const n, rounds = 2, 5
		counts := newAttendance()
		var wg sync.WaitGroup
		for range n * rounds {
			d := newDouble(w, w.Connect(), n)
			wg.Go(func() {
				r, err := d.Enter(w.Context())
				require.NoError(w, err)
				counts.mu.Lock()
				counts.entered[r.Number()]++
				for i := range r.Number() {
					require.Equal(w, n, counts.left[i], "round %d began before round %d was over", r.Number(), i)
				}
				counts.left[r.Number()]++
				counts.mu.Unlock()
				require.NoError(w, r.Leave(w.Context()))
			})
		}
		wg.Wait()
		require.Len(w, counts.entered, rounds)
		for i, count := range counts.entered {
			require.Equal(w, n, count, "round %d", i)
		}
		require.Empty(w, w.Server.Watches())
	})
}

// TestDouble_WaitsForNoCrashedParticipant checks that a participant that has crashed before the round does not
// count, that the other participants do not wait for a participant that has crashed during the round, and that a
// participant whose session has ended joins again (GH-1290, CURATOR-536).
// Scenario 50 of docs/traps.md.
func TestDouble_WaitsForNoCrashedParticipant(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		crashing, alive := w.Connect(), w.Connect()
		entered := make(chan *Round, 2)
		enter := func(conn *zk.Conn) {
			r, err := newDouble(w, conn, 2).Enter(w.Context())
			require.NoError(w, err)
			entered <- r
		}
		closing, failed := w.Connect(), make(chan error, 1)
		go func() {
			_, err := newDouble(w, closing, 2).Enter(w.Context())
			failed <- err
		}()
		synctest.Wait()
		closing.Close()
		require.ErrorIs(w, <-failed, recipes.ErrConnClosed)
		go enter(crashing)
		time.Sleep(time.Minute)
		require.Empty(w, entered)
		require.NoError(w, w.Server.ExpireSession(crashing.SessionID()))
		time.Sleep(time.Minute)
		require.Empty(w, entered)
		go enter(alive)
		first, second := <-entered, <-entered
		if first.node.Owner() != alive.SessionID() {
			first, second = second, first
		}
		done := make(chan error, 1)
		go func() { done <- first.Leave(w.Context()) }()
		time.Sleep(time.Minute)
		require.Empty(w, done)
		w.Server.Blackhole(zktest.BothWays, crashing.SessionID())
		require.NoError(w, <-done)
		require.ErrorIs(w, second.Err(), recipes.ErrLeaseExpired)
		w.Server.Heal(crashing.SessionID())
		require.NoError(w, second.Leave(w.Context()))
	})
}

// TestDouble_EndsRoundIfAllParticipantsCrash checks that a round ends, and the next one can begin, even when all
// participants of the round have crashed.
// Scenario 50 of docs/traps.md.
func TestDouble_EndsRoundIfAllParticipantsCrash(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		r, err := newDouble(w, conn, 1).Enter(w.Context())
		require.NoError(w, err)
		require.NoError(w, w.Server.ExpireSession(conn.SessionID()))
		<-r.Done()
		next, err := newDouble(w, w.Connect(), 1).Enter(w.Context())
		require.NoError(w, err)
		require.Equal(w, int64(1), next.Number())
		require.NoError(w, next.Leave(w.Context()))
		require.NoError(w, r.Leave(w.Context()))
	})
}

// TestEnter_LeavesNoZnodeIfContextIsDone checks that Enter returns as soon as its context is done, and deletes the
// znode of the participant.
// Scenario 46 of docs/traps.md.
func TestEnter_LeavesNoZnodeIfContextIsDone(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := newDouble(w, w.Connect(), 2)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := d.Enter(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Equal(w, time.Second, time.Since(begin))
		require.Equal(w, "/\n  app container\n    gate\n", w.Server.Tree())
	})
}

// TestDouble_LateParticipantDoesNotBeginRoundAgain checks that a round that has begun, or is over, does not begin
// again when a participant that does not know this yet tries to begin it.
func TestDouble_LateParticipantDoesNotBeginRoundAgain(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := newDouble(w, w.Connect(), 1)
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		before, late := roundState{}, participantName(1)
		_, err = w.Connect().Create(node+"/"+late, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.NoError(w, d.beginRound(w.Context(), before, []string{late}))
		names, _, err := d.setup.Conn.Get(node + "/ready-0")
		require.NoError(w, err, "the round has begun")
		require.NotContains(w, string(names), late)
		require.NoError(w, r.Leave(w.Context()))
		require.NoError(w, d.beginRound(w.Context(), before, []string{late}))
		require.NotContains(w, w.Server.Tree(), "ready")
	})
}

// TestDouble_BeginsNoRoundWithParticipantThatGaveUp checks that a round does not begin with fewer than n
// participants if the context of one participant ends after another participant has listed it, and before the
// other participant begins the round.
func TestDouble_BeginsNoRoundWithParticipantThatGaveUp(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		first, second := w.Connect(), w.Connect()
		gate := make(chan struct{})
		hook := w.Server.Before(zktest.Match{Op: zktest.OpMulti, Session: second.SessionID(), Path: node + "/ready-0"}, func(*zktest.Request) zktest.Verdict {
			<-gate
			return zktest.Verdict{}
		})
		cancelled, cancel := context.WithCancel(w.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := newDouble(w, first, 2).Enter(cancelled)
			gaveUp <- err
		}()
		synctest.Wait()
		entered := make(chan *Round, 1)
		go func() {
			r, err := newDouble(w, second, 2).Enter(w.Context())
			require.NoError(w, err)
			entered <- r
		}()
		synctest.Wait() // wait until the second participant has listed both znodes, and begins the round
		cancel()
		require.ErrorIs(w, <-gaveUp, context.Canceled)
		hook.Remove()
		close(gate)
		time.Sleep(time.Minute)
		require.Empty(w, entered, "a round of 2 has begun with one participant")
		require.NotContains(w, w.Server.Tree(), "ready")

		r, err := newDouble(w, first, 2).Enter(w.Context())
		require.NoError(w, err, "the next participant completes the round")
		require.NoError(w, (<-entered).node.Remove(w.Context(), recipes.ErrReleased))
		require.NoError(w, r.Leave(w.Context()))
	})
}

// TestDouble_AdmitsParticipantsInOrderOfArrival checks that participants enter in the order in which they have
// joined, and that a participant that is not needed for a round keeps its place.
func TestDouble_AdmitsParticipantsInOrderOfArrival(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		const n, participants = 2, 6
		entered := make(chan int, participants)
		var wg sync.WaitGroup
		for i := range participants {
			d := newDouble(w, w.Connect(), n)
			wg.Go(func() {
				r, err := d.Enter(w.Context())
				require.NoError(w, err)
				entered <- i
				time.Sleep(20 * time.Second)
				require.NoError(w, r.Leave(w.Context()))
			})
			time.Sleep(time.Second)
		}
		for round := range participants / n {
			first, second := <-entered, <-entered
			require.ElementsMatch(w, []int{n * round, n*round + 1}, []int{first, second})
		}
		wg.Wait()
	})
}

// TestDouble_CountsParticipantOnceAfterLeaseExpiry checks that a participant that is cut off until its lease
// expires, but whose session survives, does not join again while its earlier znode exists. Otherwise a round would
// begin with fewer than n participants.
func TestDouble_CountsParticipantOnceAfterLeaseExpiry(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		entered := make(chan error, 2)
		enter := func(conn *zk.Conn) {
			_, err := newDouble(w, conn, 2).Enter(w.Context())
			entered <- err
		}
		go enter(conn)
		synctest.Wait()
		session := conn.SessionID()
		hook := w.Server.Before(zktest.Match{Op: zktest.OpDelete, Session: session}, zktest.Cut)
		w.Server.Blackhole(zktest.ToClient, session) // discard only packets to the client, so that its session lives
		time.Sleep(10 * timeout)
		w.Server.Heal(session)
		time.Sleep(time.Minute)
		require.Empty(w, entered, "one client counts as two participants")
		hook.Remove()
		time.Sleep(time.Minute) // wait until the participant has joined again
		require.Equal(w, session, conn.SessionID())
		go enter(w.Connect())
		require.NoError(w, <-entered)
		require.NoError(w, <-entered)
	})
}

// TestDouble_MostParticipantsFitIntoOneRequest checks that the largest number of participants that NewDouble
// accepts fits into one request.
func TestDouble_MostParticipantsFitIntoOneRequest(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, _, err := w.Server.Connect(timeout) // use a connection with the default receive buffer
		require.NoError(w, err)
		d := newDouble(w, conn, 1)
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		require.NoError(w, r.Leave(w.Context()))
		current, err := d.currentRound(w.Context())
		require.NoError(w, err)
		names := make([]string, mostParticipants(node))
		for i := range names {
			names[i] = participantName(math.MaxInt64)
		}
		limited, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		require.NoError(w, d.beginRound(limited, current, names), "the server closes the connection at a larger request")
		require.Error(w, d.beginRound(limited, current, slices.Repeat(names, 2)))
	})
}

// TestDouble_BeginsRoundOnceIfMessageIsLost checks that a round begins once if the request that begins the round,
// or its reply, is lost.
func TestDouble_BeginsRoundOnceIfMessageIsLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.Server.Before, w.Server.After} {
			hook(zktest.Match{Op: zktest.OpMulti, Path: node, Nth: 1}, zktest.Cut)
			var wg sync.WaitGroup
			for range 2 {
				d := newDouble(w, w.Connect(), 2)
				wg.Go(func() {
					r, err := d.Enter(w.Context())
					require.NoError(w, err)
					require.NoError(w, r.Leave(w.Context()))
				})
			}
			wg.Wait()
			require.NotContains(w, w.Server.Tree(), "ready")
		}
	})
}

// TestDouble_KeepsRoundsCompleteUnderRandomFaults loses requests and replies, breaks connections and expires
// sessions at random. A round must not have more than n participants, no participant may leave before all have
// entered, and the rounds must continue.
func TestDouble_KeepsRoundsCompleteUnderRandomFaults(t *testing.T) {
	for seed := range uint64(bubble.Runs(40)) {
		runRandomFaults(t, seed)
	}
}

func runRandomFaults(t *testing.T, seed uint64) {
	bubble.Run(t, func(w *bubble.Test) {
		random := mathrand.New(mathrand.NewPCG(seed, 50))
		n := 1 + random.IntN(3)
		counts := newAttendance()
		ctx, cancel := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		var conns []*zk.Conn
		for range n + random.IntN(2) {
			conn := w.Connect()
			conns = append(conns, conn)
			d := newDouble(w, conn, n)
			r := mathrand.New(mathrand.NewPCG(seed, uint64(len(conns))))
			wg.Go(func() {
				for ctx.Err() == nil {
					round, err := d.Enter(ctx)
					if err != nil {
						continue
					}
					counts.mu.Lock()
					counts.entered[round.Number()]++
					require.LessOrEqual(w, counts.entered[round.Number()], n, "seed %d: round %d", seed, round.Number())
					for number, left := range counts.left {
						require.False(w, number == round.Number() && left > 0 && round.Err() == nil, "seed %d: a participant has left before all have entered", seed)
					}
					counts.mu.Unlock()
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					alive := round.Err() == nil
					if err := round.Leave(ctx); err == nil && alive {
						counts.mu.Lock()
						counts.left[round.Number()]++
						counts.mu.Unlock()
					}
				}
			})
		}
		for range 20 {
			time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
			session := conns[random.IntN(len(conns))].SessionID()
			match := zktest.Match{Session: session, Nth: 1 + random.IntN(3), Op: []zktest.Op{zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData, zktest.OpExists}[random.IntN(5)]}
			switch random.IntN(5) {
			case 0:
				w.Server.DropConnections(session)
			case 1:
				w.Server.Before(match, zktest.Cut)
			case 2:
				w.Server.After(match, zktest.Cut)
			case 3:
				_ = w.Server.ExpireSession(session)
			case 4:
				w.Server.Blackhole(zktest.BothWays, session)
				time.AfterFunc(time.Duration(random.IntN(8))*time.Second, func() { w.Server.Heal(session) })
			}
		}
		time.Sleep(30 * time.Second) // wait, because hooks can still cause faults during this time
		counts.mu.Lock()
		before := len(counts.entered)
		counts.mu.Unlock()
		time.Sleep(time.Minute)
		counts.mu.Lock()
		require.Greater(w, len(counts.entered), before, "seed %d: the rounds do not continue", seed)
		counts.mu.Unlock()
		cancel()
		wg.Wait()
		time.Sleep(30 * time.Second) // wait until the last znodes are removed in the background
		require.LessOrEqual(w, strings.Count(w.Server.Tree(), "ready"), 1)
		require.Empty(w, regexp.MustCompile(`(?m)^ +\d+-`).FindAllString(w.Server.Tree(), -1), "seed %d: the znode of a participant remains: %s", seed, w.Server.Tree())
	})
}

// TestDouble_AccumulatesNoWatches checks that calls of Enter and Leave whose contexts are done leave at most two
// watches behind, however many calls there are.
// Scenario 25 of docs/traps.md.
func TestDouble_AccumulatesNoWatches(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, other := w.Connect(), w.Connect()
		d, otherDouble := newDouble(w, conn, 2), newDouble(w, other, 2)
		callRepeatedly := func(f func(context.Context) error) {
			for range 10 {
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				require.ErrorIs(w, f(ctx), context.DeadlineExceeded)
				cancel()
			}
		}
		callRepeatedly(func(ctx context.Context) error { _, err := d.Enter(ctx); return err })
		require.LessOrEqual(w, bubble.Watches(conn), 1)
		rounds := make(chan *Round, 1)
		go func() {
			r, err := otherDouble.Enter(w.Context())
			require.NoError(w, err)
			rounds <- r
		}()
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		otherRound := <-rounds
		callRepeatedly(r.Leave)
		require.LessOrEqual(w, bubble.Watches(conn), 2, "on the znode of the round, and on a participant that has not left")
		callRepeatedly(func(ctx context.Context) error { _, err := d.Enter(ctx); return err })
		require.LessOrEqual(w, bubble.Watches(conn), 2)
		require.NoError(w, otherRound.Leave(w.Context()))
		require.NoError(w, r.Leave(w.Context()))
		require.Zero(w, bubble.Watches(conn))
	})
}

// TestEnter_DoesNotRelyOnLostWatch checks that Enter does not rely on a watch that an earlier call has set on the
// same connection, and that the client library has not set again after a reconnect.
// Scenario 27 of docs/traps.md.
func TestEnter_DoesNotRelyOnLostWatch(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		d, other := newDouble(w, conn, 2), newDouble(w, w.Connect(), 2)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := d.Enter(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Nth: 1}, zktest.Fail(zk.ErrAPIError))
		w.Server.DropConnections(conn.SessionID())
		time.Sleep(3 * time.Second)
		entered := make(chan error, 2)
		for _, double := range []*Double{d, other} {
			go func() {
				_, err := double.Enter(w.Context())
				entered <- err
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(2 * timeout)
		require.Len(w, entered, 2)
		require.NoError(w, <-entered)
		require.NoError(w, <-entered)
	})
}

// TestDouble_IgnoresForeignChildren checks that children that another program has created do not prevent the
// participants from entering or leaving.
func TestDouble_IgnoresForeignChildren(t *testing.T) {
	for name, write := range map[string]func(conn *zk.Conn) error{
		"children with other names": func(conn *zk.Conn) error {
			for _, child := range []string{"x", "0", "-", "ready-", "ready-x", "ready-7", "1-", "ü %s"} {
				if _, err := conn.Create(node+"/"+child, nil, 0, openACL); err != nil {
					return err
				}
			}
			return nil
		},
		"persistent child named like a participant": func(conn *zk.Conn) error {
			_, err := conn.Create(node+"/0-foreign", nil, 0, openACL)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				conn := w.Connect()
				for _, path := range []string{"/app", node} {
					_, err := conn.Create(path, nil, 0, openACL)
					require.NoError(w, err)
				}
				require.NoError(w, write(conn))
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				for range 3 {
					d := newDouble(w, w.Connect(), 3)
					wg.Go(func() {
						r, err := d.Enter(ctx)
						require.NoError(w, err)
						if err == nil {
							require.NoError(w, r.Leave(ctx))
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// TestEnter_RemovesZnodeIfContextOfLostHoldEnds checks that Enter deletes the znode of its participant when its
// context ends. The context belongs to a lock whose znode an operator has deleted, so its cause, ErrDeleted, could
// be mistaken for the deletion of the participant's znode. A znode that remained would count as a participant that
// does not wait.
func TestEnter_RemovesZnodeIfContextOfLostHoldEnds(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn, other := w.Connect(), w.Connect()
		mutex, err := lock.NewMutex(conn, "/mutex")
		require.NoError(w, err)
		hold, err := mutex.Lock(w.Context())
		require.NoError(w, err)
		double, err := NewDouble(conn, "/barrier", 2)
		require.NoError(w, err)
		entered := make(chan error, 1)
		go func() {
			_, err := double.Enter(hold.Context())
			entered <- err
		}()
		time.Sleep(time.Second)
		require.NoError(w, other.Delete(hold.Path(), -1))
		require.ErrorIs(w, <-entered, recipes.ErrDeleted)
		require.NoError(w, hold.Release())

		time.Sleep(time.Second)
		double, err = NewDouble(other, "/barrier", 2)
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err = double.Enter(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded, "the only participant of a barrier of two")
	})
}

// TestEnter_ContinuesAfterBarrierZnodeIsDeleted checks that Enter continues when an operator has deleted the
// znodes of the barrier and of the participant, as a loss of the servers' data does, even while the participant is
// disconnected.
func TestEnter_ContinuesAfterBarrierZnodeIsDeleted(t *testing.T) {
	t.Run("connected", func(t *testing.T) { testNodeIsDeleted(t, false) })
	t.Run("disconnected", func(t *testing.T) { testNodeIsDeleted(t, true) })
}

func testNodeIsDeleted(t *testing.T, disconnected bool) {
	bubble.Run(t, func(w *bubble.Test) {
		enter := func(conn *zk.Conn) <-chan error {
			d := newDouble(w, conn, 2)
			return bubble.Async(func() error {
				r, err := d.Enter(w.Context())
				if err == nil {
					err = r.Leave(w.Context())
				}
				return err
			})
		}
		conn, operator := w.Connect(), w.Connect()
		first := enter(conn)
		bubble.Advance(time.Second)
		names, _, err := operator.Children(node)
		require.NoError(w, err)
		require.Len(w, names, 1)
		if disconnected {
			require.Equal(w, 1, w.Server.DropConnections(conn.SessionID()))
		}
		_, err = operator.Multi(&zk.DeleteRequest{Path: node + "/" + names[0], Version: -1}, &zk.DeleteRequest{Path: node, Version: -1})
		require.NoError(w, err)
		bubble.Advance(time.Second)
		second := enter(w.Connect())
		require.NoError(w, <-first)
		require.NoError(w, <-second)
	})
}
