package interop

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oracle knows who is inside of what. Participants in other processes tell it over a
// connection, a line for each step, and go on when they are answered:
//
//	enter <room> <who> write|read
//	become <room> <who> read          who is inside as a writer
//	stay <room> <who>                 until it may go on
//	leave <room> <who>
//	took <room> <who> <item>
//
// ZooKeeper is not asked, so nothing that a library believes has any influence.
type oracle struct {
	ln    net.Listener
	guard sync.WaitGroup

	mu    sync.Mutex
	rooms map[string]*room
	conns map[net.Conn]struct{}
	over  bool
}

func newOracle() (*oracle, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &oracle{ln: ln, rooms: map[string]*room{}, conns: map[net.Conn]struct{}{}}
	o.guard.Go(o.accept)
	return o, nil
}

func (o *oracle) addr() string { return o.ln.Addr().String() }

func (o *oracle) accept() {
	for {
		conn, err := o.ln.Accept()
		if err != nil {
			return // closed
		}
		o.mu.Lock()
		if o.over {
			conn.Close()
		} else {
			o.conns[conn] = struct{}{}
			o.guard.Go(func() { o.serve(conn) })
		}
		o.mu.Unlock()
	}
}

func (o *oracle) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		o.mu.Lock()
		delete(o.conns, conn)
		o.mu.Unlock()
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if err := o.obey(strings.Fields(lines.Text())); err != nil {
			fmt.Printf("oracle: %q: %v\n", lines.Text(), err)
			return
		}
		if _, err := conn.Write([]byte("ok\n")); err != nil {
			return
		}
	}
}

func (o *oracle) obey(words []string) error {
	if len(words) < 3 {
		return errors.New("too short")
	}
	o.mu.Lock()
	r := o.rooms[words[1]]
	o.mu.Unlock()
	switch {
	case r == nil:
		return errors.New("no such room")
	case words[0] == "leave":
		r.leave(words[2])
	case words[0] == "stay":
		r.stay(words[2], "stays")
	case len(words) < 4:
		return errors.New("too short")
	case words[0] == "enter":
		r.enter(words[2], words[3])
	case words[0] == "become":
		r.become(words[2], words[3])
	case words[0] == "took":
		r.took(words[2], words[3])
	default:
		return errors.New("no such step")
	}
	return nil
}

func (o *oracle) close() error {
	o.mu.Lock()
	o.over = true
	for conn := range o.conns {
		conn.Close()
	}
	o.mu.Unlock()
	err := o.ln.Close()
	o.guard.Wait()
	return err
}

// room is what participants exclude each other from.
type room struct {
	name   string
	limit  int           // of those who are inside to write, together
	closed chan struct{} // nobody is kept any more
	close  func()        // idempotent
	gate   chan *visitor // those who stay inside; nil if they leave by themselves

	mu       sync.Mutex
	inside   map[string]string // what they do there, by who they are
	most     int               // so many were inside at a time
	order    []string          // in which they came
	items    map[string]string // who took them; for a queue
	overlaps []string
}

// visitor is inside until it is let go.
type visitor struct {
	who, kind string
	goOn      chan struct{}
}

func (v *visitor) letGo() { close(v.goOn) }

// room makes a room that is watched until the end of the test: nobody may have been
// inside with somebody who excludes it. With gate, the test lets go everyone.
func (o *oracle) room(t *testing.T, limit int, gate bool) *room {
	r := o.unguarded(t, limit, gate)
	t.Cleanup(func() {
		require.Empty(t, r.violations())
		if !t.Failed() {
			require.Empty(t, r.inside)
		}
	})
	return r
}

func (o *oracle) unguarded(t *testing.T, limit int, gate bool) *room {
	r := &room{
		name: strings.TrimPrefix(newPath(t), "/"), limit: limit, closed: make(chan struct{}),
		inside: map[string]string{}, items: map[string]string{},
	}
	r.close = sync.OnceFunc(func() { close(r.closed) })
	if gate {
		r.gate = make(chan *visitor, 100)
	}
	o.mu.Lock()
	o.rooms[r.name] = r
	o.mu.Unlock()
	t.Cleanup(r.close)
	return r
}

func (r *room) enter(who, kind string) {
	r.mu.Lock()
	if was, here := r.inside[who]; here {
		r.overlaps = append(r.overlaps, fmt.Sprintf("%s enters again, and is inside to %s", who, was))
	}
	r.inside[who] = kind
	r.order = append(r.order, who)
	r.look()
	r.mu.Unlock()
	if r.gate == nil {
		// Long enough for others to come in who should not; where several may, for
		// those too.
		if r.limit > 1 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Millisecond)
	}
	r.stay(who, kind)
}

// become says that who does something else from now on.
func (r *room) become(who, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside[who] == "" {
		r.overlaps = append(r.overlaps, who+" is not inside")
	}
	r.inside[who] = kind
	r.look()
}

// look compares who is inside with what may be.
func (r *room) look() {
	writers := 0
	var all []string
	for who, kind := range r.inside {
		if kind == "write" {
			writers++
		}
		all = append(all, who+" to "+kind)
	}
	r.most = max(r.most, len(all))
	if writers > r.limit || writers > 0 && writers < len(all) {
		slices.Sort(all)
		r.overlaps = append(r.overlaps, "inside together: "+strings.Join(all, ", "))
	}
}

// stay keeps who inside until it is let go, if that is the test's.
func (r *room) stay(who, kind string) {
	if r.gate == nil {
		return
	}
	v := &visitor{who, kind, make(chan struct{})}
	r.gate <- v
	select {
	case <-v.goOn:
	case <-r.closed:
	}
}

func (r *room) leave(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside[who] == "" {
		r.overlaps = append(r.overlaps, who+" leaves, and is not inside")
	}
	delete(r.inside, who)
}

// took says that who has an item of a queue, which nobody else may get.
func (r *room) took(who, item string) {
	r.mu.Lock()
	if first, taken := r.items[item]; taken {
		r.overlaps = append(r.overlaps, fmt.Sprintf("%s was taken by %s and by %s", item, first, who))
	}
	r.items[item] = who
	r.order = append(r.order, who)
	r.mu.Unlock()
	r.stay(who, item)
}

func (r *room) violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.overlaps)
}

// visits is how often each has come.
func (r *room) visits() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, who := range r.order {
		n[who]++
	}
	return n
}

// turns is how often one whose name begins with after came directly after one whose
// name begins with before.
func (r *room) turns(before, after string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.order); i++ {
		if strings.HasPrefix(r.order[i-1], before) && strings.HasPrefix(r.order[i], after) {
			n++
		}
	}
	return n
}

// next waits for who is inside, and next to come; "" for anybody.
func (r *room) next(t *testing.T, who string) *visitor {
	t.Helper()
	select {
	case v := <-r.gate:
		if who != "" {
			require.Equal(t, who, v.who)
		}
		return v
	case <-time.After(patience):
		require.FailNow(t, "nobody comes in", "waiting for %s", who)
		return nil
	}
}

// nobody looks whether somebody comes who must not.
func (r *room) nobody(t *testing.T) {
	t.Helper()
	select {
	case v := <-r.gate:
		require.FailNow(t, "somebody comes in", "%s to %s", v.who, v.kind)
	case <-time.After(calm):
	}
}
