package watch

import (
	"bytes"
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// What selects what a read returns, and the event for which the watch of the read waits.
type What uint8

const (
	// Data selects the data. The watch fires when the data changes or the znode is deleted. If the znode does not
	// exist, the read fails with zk.ErrNoNode and sets no watch.
	Data What = iota
	// Children selects the names of the children. The watch fires when they change or the znode is deleted. If the
	// znode does not exist, the read fails with zk.ErrNoNode and sets no watch.
	Children
	// DataOrCreation selects the data of a znode that need not exist. If the znode does not exist, the Stat of the
	// result is nil, and the watch waits for the creation.
	DataOrCreation
	// ChildrenOrCreation selects the children of a znode that need not exist. If the znode does not exist, the Stat
	// of the result is nil, and the watch waits for the creation.
	ChildrenOrCreation
	// Existence selects only the Stat. The watch waits as with Data if the znode exists, and as with DataOrCreation if the
	// znode does not exist. The read needs no permission. If the znode was created since an earlier read, the Watch
	// may be nil.
	Existence
)

// Query describes a read.
type Query struct {
	Path string
	What What
	// Epoch is the Epoch in the connection.State before the read.
	Epoch uint64
	// Woken is the watch that has woken the caller, or nil. All callers that this watch has woken share one read.
	Woken *Watch
	// Reset makes the read set the watch again if the watch is in doubt.
	Reset bool

	canceled <-chan struct{} // the Done channel of the context of Read
}

// Found is the result of a read.
type Found struct {
	Data     []byte
	Children []string // must not be changed, because all callers that share the read share the slice
	Stat     *zk.Stat // nil if the znode does not exist
	Watch    *Watch   // the watch that was set before the server has answered the read
	// Doubt means that the watch may never fire: it was set in an earlier epoch of the connection, or the
	// connection must not read the znode.
	Doubt bool
}

// Read calls Try until Try returns no transient failure. If the context is done, the error is the cause of the
// context; if the owner closes the connection, the error is connection.ErrConnClosed. With an error of
// connection.IsUnreadable, the result of a read of data lacks only the data. With connection.ErrTooLarge, the
// result of a read of children contains only the Stat.
func Read(ctx context.Context, conn *zk.Conn, q Query) (Found, error) {
	q.canceled = ctx.Done()
	return connection.Read(ctx, conn, func() (Found, error) { return Try(conn, q) })
}

// Try reads a znode, and sets a watch on the znode unless an earlier watch has not fired yet. It returns the answer
// to a request that was sent after the call or after the event of q.Woken. Concurrent calls share requests. Try
// blocks until the connection answers.
func Try(conn *zk.Conn, q Query) (Found, error) {
	p := pools.Of(conn)
	k := key{q.Path, data}
	if q.What == Children || q.What == ChildrenOrCreation {
		k.kind = children
	}
	if q.What == Existence {
		return p.read(conn, key{q.Path, creation}, q)
	}
	for {
		found, err := p.read(conn, k, q)
		if !errors.Is(err, zk.ErrNoNode) || q.What == Data || q.What == Children {
			return found, err
		}
		found, err = p.read(conn, key{q.Path, creation}, q)
		if found.Stat == nil || err != nil {
			return found, err
		}
		q.Woken = nil // another client has created the znode between the two requests
	}
}

// Listing returns the names of the children of a znode, and its Stat, without setting a watch. Like Try, Listing
// shares requests: hundreds of concurrent calls cost a few requests. It does not retry.
func Listing(conn *zk.Conn, path string) (Found, error) {
	return pools.Of(conn).read(conn, key{path, unwatched}, Query{})
}

// reads contains the read of one key that is in progress, and the next read, which is sent after the answer to the
// current read.
type reads struct {
	current, next *read
}

// read is one request, whose answer several callers share.
type read struct {
	number uint64 // the number of the read among all reads of the connection, once it was sent
	epoch  uint64
	reset  bool
	shared bool          // several callers return the answer
	done   chan struct{} // closed when found and err are set
	found  Found
	err    error
}

// read returns the answer to a request that was sent after the call or after the event of q.Woken.
func (p *pool) read(conn *zk.Conn, k key, q Query) (Found, error) {
	p.mu.Lock()
	select {
	case <-q.canceled: // the function Read has returned, so no reader would use the watch, and OnData may have been called
		p.mu.Unlock()
		return Found{}, context.Canceled
	default:
	}
	after := p.started
	if q.Woken != nil && q.Woken.fired() {
		q.Woken.awaitEvent()
		after = q.Woken.event.after
	}
	all := p.reads[k]
	if all == nil {
		all = &reads{}
		p.reads[k] = all
		r := &read{epoch: q.Epoch, reset: q.Reset, done: make(chan struct{})}
		p.begin(all, r)
		p.mu.Unlock()
		p.perform(conn, k, all)
		if r.shared {
			return r.found.clone(), r.err
		}
		return r.found, r.err
	}
	r := all.current
	if r.number <= after || r.epoch < q.Epoch || q.Reset && !r.reset {
		if all.next == nil {
			all.next = &read{done: make(chan struct{})}
		}
		r = all.next
		r.epoch, r.reset = max(r.epoch, q.Epoch), r.reset || q.Reset
	}
	r.shared = true
	p.mu.Unlock()
	<-r.done
	return r.found.clone(), r.err
}

// begin makes r the read in progress. The caller holds mu.
func (p *pool) begin(all *reads, r *read) {
	all.current, all.next = r, nil
	p.started++
	r.number = p.started
}

// perform sends the request of the current read, and starts the next read if callers wait for it.
func (p *pool) perform(conn *zk.Conn, k key, all *reads) {
	p.mu.Lock()
	r, w, watched := all.current, p.unfiredWatch(k), k
	set := k.kind != unwatched && (w == nil || w.epoch < r.epoch && r.reset && w.channels < MaxChannels)
	p.mu.Unlock()
	defer close(r.done)
	var c <-chan zk.Event
	r.found, c, r.err = send(conn, k, set)
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.kind == creation && r.found.Stat != nil {
		watched.kind, w = data, nil // a request that has found the znode has set a watch on its data
	}
	if c != nil {
		w = p.add(watched, c, r.epoch, r.found.Stat)
	}
	if r.err == nil || r.found.Stat != nil {
		// The watch is in doubt if it was set in an earlier epoch, because the server may not have the watch, or if
		// the connection must not read the znode, because there is then no watch.
		r.found.Watch, r.found.Doubt = w, w != nil && w.epoch < r.epoch || errors.Is(r.err, zk.ErrNoAuth)
	}
	if all.next == nil {
		delete(p.reads, k)
		return
	}
	p.begin(all, all.next)
	go p.perform(conn, k, all)
}

// send sends one request, which sets a watch if set is true.
func send(conn *zk.Conn, k key, set bool) (f Found, c <-chan zk.Event, err error) {
	var exists bool
	switch {
	case k.kind == data:
		f.Data, f.Stat, c, err = connection.GetW(conn, k.path, set)
	case k.kind != creation:
		f.Children, f.Stat, c, err = connection.ChildrenW(conn, k.path, set)
	case set:
		exists, f.Stat, c, err = conn.ExistsW(k.path)
	default:
		exists, f.Stat, err = conn.Exists(k.path)
	}
	unreadable := k.kind == data && connection.IsUnreadable(err) || errors.Is(err, connection.ErrTooLarge)
	if k.kind == creation && !exists || err != nil && !unreadable {
		f.Stat = nil
	}
	return f, c, err
}

// clone returns a copy for another caller. The copy shares the names of the children, because there may be many.
func (f Found) clone() Found {
	f.Data = bytes.Clone(f.Data)
	if f.Stat != nil {
		stat := *f.Stat
		f.Stat = &stat
	}
	return f
}
