package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func (w world) partitioner(conn *zk.Conn) *Partitioner {
	p, err := NewPartitioner(conn, dir, granted)
	require.NoError(w, err)
	return p
}

// numbered are n names of parts.
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
			require.Equal(t, owner, Owner(part, three), "only the new member's parts move")
		}
		slices.Reverse(four)
		require.Equal(t, owner, Owner(part, four), "in any order")
	}
	for id, n := range count {
		require.InDelta(t, 750, n, 100, id)
	}
	// All members must agree, those of other versions of this library too.
	require.Equal(t, uint64(0xbea80e18147ad432), weigh("one", "part/0"))
}

// holders is who has which part, as the users of several Shares see it. It fails the test
// when a part is granted while another's grant stands.
type holders struct {
	w  world
	mu sync.Mutex
	by map[string]*Part  // by part
	of map[string]string // member, by part

	killed map[string]time.Time // members whose session was ended by force
}

func (w world) holders() *holders {
	return &holders{w: w, by: map[string]*Part{}, of: map[string]string{}, killed: map[string]time.Time{}}
}

// use receives the parts of a Share, and gives each back after work when it is wanted.
func (h *holders) use(s *Share, work time.Duration) {
	for part := range s.Parts() {
		h.granted(s.ID(), part)
		go func() {
			select {
			case <-part.Wanted():
				time.Sleep(work)
			case <-part.Done():
			}
			_ = part.Release(context.Background())
		}()
	}
}

func (h *holders) granted(id string, part *Part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if part.Err() != nil {
		return // lost before it was looked at
	}
	if before := h.by[part.Name()]; before != nil {
		holder := h.of[part.Name()]
		// A session that the test ends by force is over before its lease is.
		if killed, ok := h.killed[holder]; before.Err() == nil && (!ok || time.Since(killed) > timeout/2) {
			h.w.Errorf("%s is granted to %s and is held by %s", part.Name(), id, holder)
		}
		assert.Greater(h.w, part.Token(), before.Token())
	}
	h.by[part.Name()], h.of[part.Name()] = part, id
}

// part is the newest grant of a part.
func (h *holders) part(name string) *Part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[name]
}

// tokens are those of the newest grants.
func (h *holders) tokens() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]int64{}
	for name, part := range h.by {
		all[name] = part.Token()
	}
	return all
}

// held is who holds what now.
func (h *holders) held() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := map[string]string{}
	for name, part := range h.by {
		if part.Err() == nil {
			now[name] = h.of[name]
		}
	}
	return now
}

// assigned is who should hold what.
func assigned(parts []string, ids ...string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		all[part] = Owner(part, ids)
	}
	return all
}

func (w world) share(p *Partitioner, id string, grace time.Duration) *Share {
	s, err := p.Join(w.Context(), id, grace)
	require.NoError(w, err)
	return s
}

func TestPartsAreDivided(t *testing.T) {
	play(t, func(w world) {
		h := w.holders()
		conn := w.connect()
		p := w.partitioner(conn)
		a := w.share(p, "a", time.Minute)
		go h.use(a, time.Second)
		settle()
		require.Empty(w, h.held(), "there are none yet")
		require.NoError(w, p.SetParts(w.Context(), numbered(9)))
		settle()
		require.Equal(w, assigned(numbered(9), "a"), h.held())
		b := w.share(w.partitioner(w.connect()), "b", time.Minute)
		go h.use(b, time.Second)
		settle()
		want := assigned(numbered(9), "a", "b")
		require.Equal(w, want, h.held())
		require.Len(w, slices.Compact(slices.Sorted(maps.Values(want))), 2, "both have some")

		// The set of parts changes while it is in use (kazoo #386).
		tokens := h.tokens()
		parts, err := p.UpdateParts(w.Context(), func(was []string) ([]string, error) {
			require.Equal(w, numbered(9), was)
			return append(was[2:], "..", "z z", "ü", "ü"), nil
		})
		require.NoError(w, err)
		require.Len(w, parts, 10)
		settle()
		require.Equal(w, assigned(parts, "a", "b"), h.held())
		for _, part := range numbered(9)[2:] {
			require.Equal(w, tokens[part], h.part(part).Token(), "it has stayed")
		}

		// A guarded write; and a part that is given back comes again.
		one := h.part(parts[0])
		_, err = one.Multi(&zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
		require.NoError(w, err)
		require.NoError(w, one.Release(w.Context()))
		require.ErrorIs(w, one.Err(), lock.ErrReleased)
		require.NotErrorIs(w, one.Err(), ErrRevoked)
		settle()
		require.Greater(w, h.part(parts[0]).Token(), one.Token())
		require.Equal(w, assigned(parts, "a", "b"), h.held())

		require.NoError(w, b.Close(w.Context()))
		require.NoError(w, b.Close(w.Context()))
		require.ErrorIs(w, b.Err(), ErrClosed)
		settle()
		require.Equal(w, assigned(parts, "a"), h.held())
		require.NoError(w, a.Close(w.Context()))
		require.Empty(w, h.held())
		left(w)
	})
}

// left requires that nothing is left but what is documented.
func left(w world) {
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

// The holder is told first, and has its time; then the part is taken from it.
func TestPartIsRevokedAfterTheGrace(t *testing.T) {
	play(t, func(w world) {
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
			t.Fatal("nobody wants it")
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
		require.ErrorIs(w, err, lock.ErrNotHeld)
		require.Greater(w, next.Token(), part.Token())
		require.NoError(w, part.Release(w.Context()))
		require.NoError(w, other.Close(w.Context()), "with no grace at all")
		require.ErrorIs(w, next.Err(), ErrRevoked)
		require.NoError(w, s.Close(w.Context()))
		left(w)
	})
}

// A part that nobody has received is not kept for the grace.
func TestPartThatNobodyReceives(t *testing.T) {
	play(t, func(w world) {
		p := w.partitioner(w.connect())
		require.NoError(w, p.SetParts(w.Context(), numbered(4)))
		idle := w.share(p, "idle", time.Hour)
		settle()
		h := w.holders()
		busy := w.share(w.partitioner(w.connect()), "busy", time.Hour)
		go h.use(busy, 0)
		settle()
		want := assigned(numbered(4), "idle", "busy")
		maps.DeleteFunc(want, func(_, id string) bool { return id == "idle" })
		require.Equal(w, want, h.held())
		require.NoError(w, idle.Close(w.Context()))
		settle()
		require.Equal(w, assigned(numbered(4), "busy"), h.held())
		require.NoError(w, busy.Close(w.Context()))
		left(w)
	})
}

// kazoo #271, #283, #298, #392: members that come and go all the time neither make two
// hold a part nor keep the others from theirs.
func TestTrap51_MembersFlap(t *testing.T) {
	play(t, func(w world) {
		h := w.holders()
		steady := w.partitioner(w.connect())
		require.NoError(w, steady.SetParts(w.Context(), numbered(12)))
		a := w.share(steady, "a", time.Second)
		go h.use(a, 100*time.Millisecond)
		settle()
		tokens := h.tokens()
		flapping := w.connect()
		for range 20 {
			b := w.share(w.partitioner(flapping), "b", time.Second)
			go h.use(b, 100*time.Millisecond)
			time.Sleep(700 * time.Millisecond)
			require.NoError(w, b.Close(w.Context()))
			for part, id := range assigned(numbered(12), "a", "b") {
				if id == "a" {
					require.NoError(w, h.part(part).Err())
					require.Equal(w, tokens[part], h.part(part).Token(), "what is not the other's never moves")
				}
			}
		}
		settle()
		require.Equal(w, assigned(numbered(12), "a"), h.held())
		require.NoError(w, a.Close(w.Context()))
		left(w)
	})
}

// A holder that is out of reach is told before another has its part.
func TestTrap14_HolderOutOfReach(t *testing.T) {
	play(t, func(w world) {
		h := w.holders()
		lost := w.connect()
		p := w.partitioner(lost)
		require.NoError(w, p.SetParts(w.Context(), numbered(6)))
		a := w.share(p, "a", time.Hour)
		go h.use(a, 0)
		b := w.share(w.partitioner(w.connect()), "b", time.Hour)
		go h.use(b, 0)
		settle()
		want := assigned(numbered(6), "a", "b")
		require.Equal(w, want, h.held())
		session := lost.SessionID()
		w.srv.Blackhole(zktest.BothWays, session)
		time.Sleep(3 * time.Second)
		require.NoError(w, w.srv.ExpireSession(session))
		time.Sleep(time.Second)
		require.Equal(w, assigned(numbered(6), "b"), h.held())
		settle()
		require.Equal(w, want, h.held(), "it is back")
		require.NotEqual(w, session, a.member.Current().Session)
		require.NoError(w, a.Close(w.Context()))
		require.NoError(w, b.Close(w.Context()))
		left(w)
	})
}

func TestShareOfAClosedConnection(t *testing.T) {
	play(t, func(w world) {
		conn := w.connect()
		p := w.partitioner(conn)
		require.NoError(w, p.SetParts(w.Context(), numbered(3)))
		s := w.share(p, "a", time.Hour)
		part := <-s.Parts()
		settle() // Close with a request under way can hang the client library's goroutine
		conn.Close()
		<-part.Done()
		_, ok := <-s.Parts()
		for ok {
			_, ok = <-s.Parts()
		}
		<-s.Done()
		require.ErrorIs(w, s.Err(), recipes.ErrConnClosed)
		settle() // places in line are given up in the background
	})
}

// What the names take is what they take as JSON.
func TestTrap37_NamesThatGrowAsJSON(t *testing.T) {
	play(t, func(w world) {
		p, err := NewPartitioner(w.connect(), "/app", granted)
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		err = p.SetParts(ctx, []string{strings.Repeat("<", 400<<10)})
		require.ErrorIs(w, err, recipes.ErrInvalidOption)
		require.NoError(w, ctx.Err())
	})
}
