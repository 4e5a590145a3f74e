package barrier

import (
	"context"
	"crypto/rand"
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

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// roll is what participants have done, round by round.
type roll struct {
	mu      sync.Mutex
	inside  map[int64]int // entered and not yet leaving
	entered map[int64]int
	left    map[int64]int // Leave has returned
}

func newRoll() *roll {
	return &roll{inside: map[int64]int{}, entered: map[int64]int{}, left: map[int64]int{}}
}

func TestRounds(t *testing.T) {
	play(t, func(w world) {
		const n, rounds = 3, 4
		book := newRoll()
		var wg sync.WaitGroup
		for id := range n {
			d := w.double(w.connect(), n)
			wg.Go(func() {
				for i := range int64(rounds) {
					time.Sleep(time.Duration(id) * time.Second) // the last one is late
					r, err := d.Enter(w.Context())
					require.NoError(w, err)
					require.Equal(w, i, r.Number())
					book.mu.Lock()
					book.entered[i]++
					require.Zero(w, book.left[i], "somebody has left a round that has not begun for all")
					book.mu.Unlock()
					require.NoError(w, r.Err())
					require.NoError(w, r.Leave(w.Context()))
					require.ErrorIs(w, r.Err(), ErrLeft)
					book.mu.Lock()
					require.Equal(w, n, book.entered[i])
					book.left[i]++
					book.mu.Unlock()
					require.NoError(w, r.Leave(w.Context()), "again")
				}
			})
		}
		wg.Wait()
		require.Equal(w, "/\n  app\n    gate \"4\"\n", w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}

// More come than a round takes: each is in exactly one.
func TestMoreThanOneRoundTakes(t *testing.T) {
	play(t, func(w world) {
		const n, rounds = 2, 5
		book := newRoll()
		var wg sync.WaitGroup
		for range n * rounds {
			d := w.double(w.connect(), n)
			wg.Go(func() {
				r, err := d.Enter(w.Context())
				require.NoError(w, err)
				book.mu.Lock()
				book.entered[r.Number()]++
				for i := range r.Number() {
					require.Equal(w, n, book.left[i], "round %d began before round %d was over", r.Number(), i)
				}
				book.left[r.Number()]++
				book.mu.Unlock()
				require.NoError(w, r.Leave(w.Context()))
			})
		}
		wg.Wait()
		require.Len(w, book.entered, rounds)
		for i, count := range book.entered {
			require.Equal(w, n, count, "round %d", i)
		}
		require.Empty(w, w.srv.Watches())
	})
}

// GH-1290, CURATOR-536: who dies before the round is missing, who dies in it has left.
func TestTrap50_ParticipantsDie(t *testing.T) {
	play(t, func(w world) {
		dying, living := w.connect(), w.connect()
		failed := make(chan error, 1)
		go func() {
			_, err := w.double(dying, 2).Enter(w.Context())
			failed <- err
		}()
		synctest.Wait()
		require.NoError(w, w.srv.ExpireSession(dying.SessionID()))
		require.ErrorIs(w, <-failed, recipes.ErrDeleted)
		entered := make(chan *Round, 2)
		enter := func(conn *zk.Conn) {
			r, err := w.double(conn, 2).Enter(w.Context())
			require.NoError(w, err)
			entered <- r
		}
		go enter(living)
		time.Sleep(time.Minute)
		require.Empty(w, entered)
		go enter(dying)
		first, second := <-entered, <-entered
		if first.node.Owner() != living.SessionID() {
			first, second = second, first
		}
		done := make(chan error, 1)
		go func() { done <- first.Leave(w.Context()) }()
		time.Sleep(time.Minute)
		require.Empty(w, done)
		w.srv.Blackhole(zktest.BothWays, dying.SessionID())
		require.NoError(w, <-done)
		require.ErrorIs(w, second.Err(), recipes.ErrLeaseExpired)
		w.srv.Heal(dying.SessionID())
		require.NoError(w, second.Leave(w.Context()))
	})
}

// All die in a round: who comes next must not wait for ever.
func TestTrap50_NobodyIsLeft(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		r, err := w.double(conn, 1).Enter(w.Context())
		require.NoError(w, err)
		require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
		<-r.Done()
		next, err := w.double(w.connect(), 1).Enter(w.Context())
		require.NoError(w, err)
		require.Equal(w, int64(1), next.Number())
		require.NoError(w, next.Leave(w.Context()))
		require.NoError(w, r.Leave(w.Context()))
	})
}

func TestTrap46_ContextEnds(t *testing.T) {
	play(t, func(w world) {
		d := w.double(w.connect(), 2)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := d.Enter(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.Equal(w, time.Second, time.Since(begin))
		require.Equal(w, "/\n  app\n    gate\n", w.srv.Tree())
	})
}

// A participant is slow to begin a round, which by then is over: it must not begin it
// once more.
func TestRoundIsNotBegunTwice(t *testing.T) {
	play(t, func(w world) {
		d := w.double(w.connect(), 1)
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		before := round{0, 0}
		_, err = w.connect().Create(node+"/0-late", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.NoError(w, d.begin(w.Context(), before, []string{"0-late"}))
		names, begun, err := d.participants(w.Context(), 0)
		require.NoError(w, err)
		require.True(w, begun)
		require.NotContains(w, names, "0-late")
		require.NoError(w, r.Leave(w.Context()))
		require.NoError(w, d.begin(w.Context(), before, []string{"0-late"}))
		require.NotContains(w, w.srv.Tree(), "ready")
	})
}

// A participant gives up, and its Enter returns, after another participant has listed it and
// before that one begins the round: the round must not begin with fewer than n participants.
func TestRoundDoesNotBeginWithAParticipantThatGaveUp(t *testing.T) {
	play(t, func(w world) {
		first, second := w.connect(), w.connect()
		gate := make(chan struct{})
		hook := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: second.SessionID(), Path: node + "/ready-0"}, func(*zktest.Request) zktest.Verdict {
			<-gate
			return zktest.Verdict{}
		})
		givesUp, cancel := context.WithCancel(w.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := w.double(first, 2).Enter(givesUp)
			gaveUp <- err
		}()
		synctest.Wait()
		entered := make(chan *Round, 1)
		go func() {
			r, err := w.double(second, 2).Enter(w.Context())
			require.NoError(w, err)
			entered <- r
		}()
		synctest.Wait() // the second participant has listed both and begins the round
		cancel()
		require.ErrorIs(w, <-gaveUp, context.Canceled)
		hook.Remove()
		close(gate)
		time.Sleep(time.Minute)
		require.Empty(w, entered, "a round of 2 has begun with one participant")
		require.NotContains(w, w.srv.Tree(), "ready")

		r, err := w.double(first, 2).Enter(w.Context())
		require.NoError(w, err, "the next participant completes the round")
		require.NoError(w, (<-entered).node.Remove(w.Context(), ErrLeft))
		require.NoError(w, r.Leave(w.Context()))
	})
}

// The largest number of participants that NewDouble accepts fits into one request.
func TestMostParticipantsFitIntoOneRequest(t *testing.T) {
	play(t, func(w world) {
		conn, _, err := w.srv.Connect(timeout) // with the default buffer for answers
		require.NoError(w, err)
		d := w.double(conn, 1)
		r, err := d.Enter(w.Context())
		require.NoError(w, err)
		require.NoError(w, r.Leave(w.Context()))
		at, err := d.next(w.Context())
		require.NoError(w, err)
		names := make([]string, mostParticipants(node))
		for i := range names {
			names[i] = prefix(math.MaxInt64) + rand.Text()
		}
		limited, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		require.NoError(w, d.begin(limited, at, names), "the server closes the connection at a larger request")
		require.Error(w, d.begin(limited, at, slices.Repeat(names, 2)))
	})
}

// The request that begins a round is lost, or its reply.
func TestBeginIsLost(t *testing.T) {
	play(t, func(w world) {
		for _, hook := range []func(zktest.Match, zktest.HookFunc) *zktest.Hook{w.srv.Before, w.srv.After} {
			hook(zktest.Match{Op: zktest.OpMulti, Path: node, Nth: 1}, zktest.Cut)
			var wg sync.WaitGroup
			for range 2 {
				d := w.double(w.connect(), 2)
				wg.Go(func() {
					r, err := d.Enter(w.Context())
					require.NoError(w, err)
					require.NoError(w, r.Leave(w.Context()))
				})
			}
			wg.Wait()
			require.NotContains(w, w.srv.Tree(), "ready")
		}
	})
}

// Seeded schedules: participants of many rounds, with lost requests and replies,
// broken connections and ended sessions. Whoever enters a round is one of n, nobody
// leaves before all have entered, and the rounds go on.
func TestSchedules(t *testing.T) {
	for seed := range uint64(40) {
		schedule(t, seed)
	}
}

func schedule(t *testing.T, seed uint64) {
	play(t, func(w world) {
		random := mathrand.New(mathrand.NewPCG(seed, 50))
		n := 1 + random.IntN(3)
		book := newRoll()
		ctx, cancel := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		var conns []*zk.Conn
		for range n + random.IntN(2) {
			conn := w.connect()
			conns = append(conns, conn)
			d := w.double(conn, n)
			r := mathrand.New(mathrand.NewPCG(seed, uint64(len(conns))))
			wg.Go(func() {
				for ctx.Err() == nil {
					round, err := d.Enter(ctx)
					if err != nil {
						continue
					}
					book.mu.Lock()
					book.entered[round.Number()]++
					require.LessOrEqual(w, book.entered[round.Number()], n, "seed %d: round %d", seed, round.Number())
					for number, left := range book.left {
						require.False(w, number == round.Number() && left > 0 && round.Err() == nil, "seed %d: left before all have entered", seed)
					}
					book.mu.Unlock()
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					alive := round.Err() == nil
					if err := round.Leave(ctx); err == nil && alive {
						book.mu.Lock()
						book.left[round.Number()]++
						book.mu.Unlock()
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
				w.srv.DropConnections(session)
			case 1:
				w.srv.Before(match, zktest.Cut)
			case 2:
				w.srv.After(match, zktest.Cut)
			case 3:
				_ = w.srv.ExpireSession(session)
			case 4:
				w.srv.Blackhole(zktest.BothWays, session)
				time.AfterFunc(time.Duration(random.IntN(8))*time.Second, func() { w.srv.Heal(session) })
			}
		}
		time.Sleep(30 * time.Second) // faults that are armed may still come
		book.mu.Lock()
		before := len(book.entered)
		book.mu.Unlock()
		time.Sleep(time.Minute)
		book.mu.Lock()
		require.Greater(w, len(book.entered), before, "seed %d: the rounds do not go on", seed)
		book.mu.Unlock()
		cancel()
		wg.Wait()
		time.Sleep(30 * time.Second) // what is removed in the background
		require.LessOrEqual(w, strings.Count(w.srv.Tree(), "ready"), 1)
		require.Empty(w, regexp.MustCompile(`(?m)^ +\d+-`).FindAllString(w.srv.Tree(), -1), "seed %d: a participant is left: %s", seed, w.srv.Tree())
	})
}
