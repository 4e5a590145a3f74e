package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func (w fixture) partitioner(conn *zk.Conn) *Partitioner {
	p, err := NewPartitioner(conn, dir, sessionTimeoutOption)
	require.NoError(w, err)
	return p
}

// numbered returns the names of n parts.
func numbered(n int) (parts []string) {
	for i := range n {
		parts = append(parts, fmt.Sprint("part/", i))
	}
	return parts
}

func TestOwner(t *testing.T) {
	require.Empty(t, Owner("a", nil))
	three := []string{"one", "two", "three"}
	four := append(slices.Clone(three), "four")
	count := map[string]int{}
	for _, part := range numbered(3000) {
		owner := Owner(part, four)
		count[owner]++
		if owner != "four" {
			require.Equal(t, owner, Owner(part, three), "only parts that are assigned to the new member move")
		}
		slices.Reverse(four)
		require.Equal(t, owner, Owner(part, four), "in any order")
	}
	for id, n := range count {
		require.InDelta(t, 750, n, 100, id)
	}
	// The hash must be the same in all versions of this library.
	require.Equal(t, uint64(0xbea80e18147ad432), weigh("one", "part/0"))
}

// holders records which member holds which part, as the users of the Shares observe it. It fails
// the test if a part is granted while an earlier grant of it is valid.
type holders struct {
	w       fixture
	mu      sync.Mutex
	grants  map[string]*Part  // the newest grants, by part
	members map[string]string // their members, by part

	expired map[string]time.Time // when the test has expired the session of a member
}

func (w fixture) holders() *holders {
	return &holders{w: w, grants: map[string]*Part{}, members: map[string]string{}, expired: map[string]time.Time{}}
}

// useParts receives the parts of a Share, and releases each of them when it is wanted, after the
// time work.
func (h *holders) useParts(s *Share, work time.Duration) {
	for part := range s.Parts() {
		h.recordGrant(s.ID(), part)
		go func() {
			select {
			case <-part.Wanted():
				time.Sleep(work)
			case <-part.Done():
			}
			_ = part.Release()
		}()
	}
}

func (h *holders) recordGrant(id string, part *Part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if part.Err() != nil {
		return // it was lost before it was received
	}
	if before := h.grants[part.Name()]; before != nil {
		holder := h.members[part.Name()]
		// A session that the test expires ends before its lease.
		if expired, ok := h.expired[holder]; before.Err() == nil && (!ok || time.Since(expired) > timeout/2) {
			h.w.Errorf("%s is granted to %s and is held by %s", part.Name(), id, holder)
		}
		assert.Greater(h.w, part.Token(), before.Token())
	}
	h.grants[part.Name()], h.members[part.Name()] = part, id
}

// part returns the newest grant of a part.
func (h *holders) part(name string) *Part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grants[name]
}

// tokens returns the tokens of the newest grants.
func (h *holders) tokens() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]int64{}
	for name, part := range h.grants {
		all[name] = part.Token()
	}
	return all
}

// current returns the members that hold the parts, by part.
func (h *holders) current() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := map[string]string{}
	for name, part := range h.grants {
		if part.Err() == nil {
			now[name] = h.members[name]
		}
	}
	return now
}

// assigned returns the members that should hold the parts, by part.
func assigned(parts []string, ids ...string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		all[part] = Owner(part, ids)
	}
	return all
}

func (w fixture) share(p *Partitioner, id string, grace time.Duration) *Share {
	s, err := p.Join(w.Context(), id, grace)
	require.NoError(w, err)
	return s
}

// Fails if a part is not held by the member to which it is assigned, or moves without need.
func TestPartitioner_PartsAreDivided(t *testing.T) {
	runTest(t, func(w fixture) {
		h := w.holders()
		conn := w.connect()
		p := w.partitioner(conn)
		a := w.share(p, "a", time.Minute)
		go h.useParts(a, time.Second)
		settle()
		require.Empty(w, h.current(), "no parts yet")
		require.NoError(w, p.SetParts(w.Context(), numbered(9)))
		settle()
		require.Equal(w, assigned(numbered(9), "a"), h.current())
		b := w.share(w.partitioner(w.connect()), "b", time.Minute)
		go h.useParts(b, time.Second)
		settle()
		want := assigned(numbered(9), "a", "b")
		require.Equal(w, want, h.current())
		require.Len(w, slices.Compact(slices.Sorted(maps.Values(want))), 2, "both have parts")

		// The set of parts changes while it is in use (kazoo #386).
		tokens := h.tokens()
		parts, err := p.UpdateParts(w.Context(), func(was []string) ([]string, error) {
			require.Equal(w, numbered(9), was)
			return append(was[2:], "..", "z z", "ü", "ü"), nil
		})
		require.NoError(w, err)
		require.Len(w, parts, 10)
		settle()
		require.Equal(w, assigned(parts, "a", "b"), h.current())
		for _, part := range numbered(9)[2:] {
			require.Equal(w, tokens[part], h.part(part).Token(), "it has not moved")
		}

		// A guarded write. A part that was released is granted again.
		one := h.part(parts[0])
		_, err = one.Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(w, err)
		require.NoError(w, one.Release())
		require.ErrorIs(w, one.Err(), recipes.ErrReleased)
		require.NotErrorIs(w, one.Err(), ErrRevoked)
		settle()
		require.Greater(w, h.part(parts[0]).Token(), one.Token())
		require.Equal(w, assigned(parts, "a", "b"), h.current())

		require.NoError(w, b.Close())
		require.NoError(w, b.Close())
		require.ErrorIs(w, b.Err(), recipes.ErrClosed)
		settle()
		require.Equal(w, assigned(parts, "a"), h.current())
		require.NoError(w, a.Close())
		require.Empty(w, h.current())
		requireNothingLeft(w)
	})
}

// requireNothingLeft requires that no znodes and watches remain except those that are documented.
func requireNothingLeft(w fixture) {
	settle()
	for _, s := range w.srv.Sessions() {
		for _, node := range s.Ephemerals {
			require.Contains(w, node, "/parts/_r_", "the register of a session that has set the parts")
		}
	}
	for _, watch := range w.srv.Watches() {
		require.Contains(w, []string{dir + "/members", dir + "/parts"}, watch.Path)
	}
}

// Fails if the holder is not notified when its part is assigned to another member, or if the part
// is not revoked after the grace period.
func TestPart_RevokedAfterTheGracePeriod(t *testing.T) {
	runTest(t, func(w fixture) {
		p := w.partitioner(w.connect())
		require.NoError(w, p.SetParts(w.Context(), []string{"one"}))
		ids := []string{"a", "b"}
		second := Owner("one", ids)
		first := ids[1-slices.Index(ids, second)]
		s := w.share(p, first, 10*time.Second)
		part := <-s.Parts()
		require.Equal(w, "one", part.Name())
		time.Sleep(time.Hour)
		select {
		case <-part.Wanted():
			t.Fatal("the part is not assigned to another member")
		default:
		}
		other := w.share(w.partitioner(w.connect()), second, 0)
		<-part.Wanted()
		begin := time.Now()
		require.NoError(w, part.Err())
		next := <-other.Parts()
		require.Equal(w, 10*time.Second, time.Since(begin).Round(100*time.Millisecond))
		require.ErrorIs(w, part.Err(), ErrRevoked)
		_, err := part.Multi()
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		require.Greater(w, next.Token(), part.Token())
		require.NoError(w, part.Release())
		require.NoError(w, other.Close(), "without a grace period")
		require.ErrorIs(w, next.Err(), ErrRevoked)
		require.NoError(w, s.Close())
		requireNothingLeft(w)
	})
}

// Fails if a part that was not received is kept for the grace period.
func TestPart_NotReceived(t *testing.T) {
	runTest(t, func(w fixture) {
		p := w.partitioner(w.connect())
		require.NoError(w, p.SetParts(w.Context(), numbered(4)))
		idle := w.share(p, "idle", time.Hour)
		settle()
		h := w.holders()
		busy := w.share(w.partitioner(w.connect()), "busy", time.Hour)
		go h.useParts(busy, 0)
		settle()
		want := assigned(numbered(4), "idle", "busy")
		maps.DeleteFunc(want, func(_, id string) bool { return id == "idle" })
		require.Equal(w, want, h.current())
		require.NoError(w, idle.Close())
		settle()
		require.Equal(w, assigned(numbered(4), "busy"), h.current())
		require.NoError(w, busy.Close())
		requireNothingLeft(w)
	})
}

// kazoo #271, #283, #298, #392: fails if members that join and leave repeatedly make two members
// hold a part, or prevent others from holding theirs.
func TestTrap51_MembersJoinAndLeaveRepeatedly(t *testing.T) {
	runTest(t, func(w fixture) {
		h := w.holders()
		steady := w.partitioner(w.connect())
		require.NoError(w, steady.SetParts(w.Context(), numbered(12)))
		a := w.share(steady, "a", time.Second)
		go h.useParts(a, 100*time.Millisecond)
		settle()
		tokens := h.tokens()
		flapping := w.connect()
		for range 20 {
			b := w.share(w.partitioner(flapping), "b", time.Second)
			go h.useParts(b, 100*time.Millisecond)
			time.Sleep(700 * time.Millisecond)
			require.NoError(w, b.Close())
			for part, id := range assigned(numbered(12), "a", "b") {
				if id == "a" {
					require.NoError(w, h.part(part).Err())
					require.Equal(w, tokens[part], h.part(part).Token(), "a part of this member does not move")
				}
			}
		}
		settle()
		require.Equal(w, assigned(numbered(12), "a"), h.current())
		require.NoError(w, a.Close())
		requireNothingLeft(w)
	})
}

// Fails if a holder whose server is unreachable is not notified before another member holds its
// part.
func TestTrap14_HolderIsDisconnected(t *testing.T) {
	runTest(t, func(w fixture) {
		h := w.holders()
		lost := w.connect()
		p := w.partitioner(lost)
		require.NoError(w, p.SetParts(w.Context(), numbered(6)))
		a := w.share(p, "a", time.Hour)
		go h.useParts(a, 0)
		b := w.share(w.partitioner(w.connect()), "b", time.Hour)
		go h.useParts(b, 0)
		settle()
		want := assigned(numbered(6), "a", "b")
		require.Equal(w, want, h.current())
		session := lost.SessionID()
		w.srv.Blackhole(zktest.BothWays, session)
		time.Sleep(3 * time.Second)
		require.NoError(w, w.srv.ExpireSession(session))
		time.Sleep(time.Second)
		require.Equal(w, assigned(numbered(6), "b"), h.current())
		settle()
		require.Equal(w, want, h.current(), "the member has rejoined")
		require.NotEqual(w, session, a.member.Current().Session)
		require.NoError(w, a.Close())
		require.NoError(w, b.Close())
		requireNothingLeft(w)
	})
}

// Fails if a member ends, or loses other parts, because one part cannot be locked or because the list
// of parts cannot be read for some time.
func TestPartitioner_ForeignParticipant(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, repair func(w fixture, p *Partitioner, conn *zk.Conn)
		spoils        string // the part that cannot be locked
	}{
		"no right for the lock of a part": {
			spoil: func(w fixture, p *Partitioner, conn *zk.Conn) {
				_, err := conn.Create(p.setup.Path+"/locks", nil, 0, openACL)
				require.NoError(w, err)
				_, err = conn.Create(p.lockPath(numbered(1)[0]), nil, 0, zk.WorldACL(zk.PermRead|zk.PermAdmin))
				require.NoError(w, err)
			},
			repair: func(w fixture, p *Partitioner, conn *zk.Conn) {
				_, err := conn.SetACL(p.lockPath(numbered(1)[0]), openACL, -1)
				require.NoError(w, err)
			},
			spoils: numbered(1)[0],
		},
		"the lock of a part is ephemeral": {
			spoil: func(w fixture, p *Partitioner, conn *zk.Conn) {
				_, err := conn.Create(p.setup.Path+"/locks", nil, 0, openACL)
				require.NoError(w, err)
				_, err = conn.Create(p.lockPath(numbered(1)[0]), nil, zk.FlagEphemeral, openACL)
				require.NoError(w, err)
			},
			repair: func(w fixture, p *Partitioner, conn *zk.Conn) {
				require.NoError(w, conn.Delete(p.lockPath(numbered(1)[0]), -1))
			},
			spoils: numbered(1)[0],
		},
		"the list of parts is garbage": {
			spoil: func(w fixture, p *Partitioner, conn *zk.Conn) {
				time.AfterFunc(10*time.Second, func() { _, _ = conn.Set(p.setup.Path+"/parts", []byte("{"), -1) })
			},
			repair: func(w fixture, p *Partitioner, conn *zk.Conn) {
				_, err := conn.Set(p.setup.Path+"/parts", []byte(`["`+strings.Join(numbered(6), `","`)+`"]`), -1)
				require.NoError(w, err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(w fixture) {
				h, foreign := w.holders(), w.connect()
				p, q := w.partitioner(w.connect()), w.partitioner(w.connect())
				require.NoError(w, p.SetParts(w.Context(), numbered(6)))
				c.spoil(w, p, foreign)
				a, b := w.share(p, "a", time.Minute), w.share(q, "b", time.Minute)
				go h.useParts(a, time.Second)
				go h.useParts(b, time.Second)
				time.Sleep(5 * time.Minute)
				want := assigned(numbered(6), "a", "b")
				delete(want, c.spoils)
				require.Equal(w, want, h.current())
				require.NoError(w, a.Err())
				require.NoError(w, b.Err())
				c.repair(w, p, foreign)
				time.Sleep(2 * time.Minute)
				require.Equal(w, assigned(numbered(6), "a", "b"), h.current())
				require.NoError(w, a.Close())
				require.NoError(w, b.Close())
			})
		})
	}
}

// Fails if a Share does not end when the connection is closed.
func TestShare_ConnectionClosed(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		p := w.partitioner(conn)
		require.NoError(w, p.SetParts(w.Context(), numbered(3)))
		s := w.share(p, "a", time.Hour)
		part := <-s.Parts()
		settle() // closing with a request in flight can hang the client library
		conn.Close()
		<-part.Done()
		_, ok := <-s.Parts()
		for ok {
			_, ok = <-s.Parts()
		}
		<-s.Done()
		require.ErrorIs(w, s.Err(), recipes.ErrConnClosed)
		settle() // the contenders end in the background
	})
}

// Fails if the limit does not apply to the names as JSON, in which characters are escaped.
func TestTrap37_NamesThatGrowAsJSON(t *testing.T) {
	runTest(t, func(w fixture) {
		p, err := NewPartitioner(w.connect(), "/app", sessionTimeoutOption)
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		err = p.SetParts(ctx, []string{strings.Repeat("<", 400<<10)})
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.NoError(w, ctx.Err())
	})
}

// Fails if each Share that was closed leaves more watches behind.
func TestTrap25_WatchesOfSharesDoNotAddUp(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		p, err := NewPartitioner(conn, "/p")
		require.NoError(w, err)
		require.NoError(w, p.SetParts(w.Context(), []string{"a"}))
		for i := range 50 {
			s, err := p.Join(w.Context(), "m", 0)
			require.NoError(w, err)
			<-s.Parts()
			require.NoError(w, s.Close())
			synctest.Wait()
			require.LessOrEqual(w, bubble.Watches(conn), 3, i)
		}
	})
}
