package group

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Persistent keeps an ephemeral znode in place until it is closed: one that has gone,
// with the session or because somebody has deleted it, is created again. Its methods
// may be called from any goroutine. It must be closed.
type Persistent struct {
	at     *setup.Setup
	stop   context.CancelCauseFunc
	ended  chan struct{} // closed when the goroutine has ended
	status chan Presence // capacity 1
	wake   chan struct{} // capacity 1: there is something to write

	mu      sync.Mutex
	current Presence
	data    []byte
	wanted  uint64        // counts what Set was given
	written uint64        // the newest of them that ZooKeeper has, or refuses
	refusal error         // of written
	moved   chan struct{} // closed and replaced when written moves
	err     error         // before ended: why it has ended
	removal error         // before ended: why it is not certain that nothing is left
}

// Presence says whether a znode is in place.
type Presence struct {
	Present bool
	// Token is the znode's creation zxid, which grows each time it is created again,
	// and Session the session whose it is. Both are 0 where it is absent, except that
	// while another's znode is in the way they are that one's.
	Token, Session int64
	// Err is why it is absent, for errors.Is: [ErrTaken], [recipes.ErrSessionExpired],
	// [recipes.ErrDeleted] while it is being created again; in the last element why it
	// stays absent: [ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission] or
	// what else ZooKeeper has against it. It is nil before the first try has ended, and
	// when the znode is present.
	Err error
}

// maxData bounds a znode's data: a request that is longer than the megabyte which a
// server accepts by default makes it close the connection, each time anew.
const maxData = 0xfffff - 4096

// Keep begins to keep an ephemeral znode with data at path, whose parents are created
// where they are missing, the nearest as a container. It does not wait; see
// [Persistent.Await]. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func Keep(conn *zk.Conn, path string, data []byte, opts ...recipes.Option) (*Persistent, error) {
	s, err := setup.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return keep(s, data)
}

func keep(s *setup.Setup, data []byte) (*Persistent, error) {
	if err := checkData(s.Path, data); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	p := &Persistent{
		at: s, stop: stop, ended: make(chan struct{}),
		status: make(chan Presence, 1), wake: make(chan struct{}, 1), moved: make(chan struct{}),
		data: slices.Clone(data),
	}
	go newKeeper(p).run(ctx)
	return p, nil
}

func checkData(path string, data []byte) error {
	if len(path)+len(data) > maxData {
		return fmt.Errorf("%w: %d bytes of data, more than a server accepts", recipes.ErrInvalidOption, len(data))
	}
	return nil
}

// Await returns nil as soon as the znode is in place, or the context's cause, or the
// error that has ended the Persistent.
func (p *Persistent) Await(ctx context.Context) error {
	for {
		p.mu.Lock()
		present, moved := p.current.Present, p.moved
		p.mu.Unlock()
		if present {
			return nil
		}
		select {
		case <-moved:
		case <-p.ended:
			return setup.Fail("keep", p.at.Path, p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Status delivers the newest state; a reader that is late misses those before. All
// calls return the same channel, which is closed after the last state. That the znode
// is present is what ZooKeeper has last said: while there is no connection it stays so.
func (p *Persistent) Status() <-chan Presence { return p.status }

// Current is the newest state.
func (p *Persistent) Current() Presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Done is closed when the znode is not kept any more.
func (p *Persistent) Done() <-chan struct{} { return p.ended }

// Err is nil while the znode is kept, and afterwards why it is not: [ErrClosed],
// [recipes.ErrConnClosed], [recipes.ErrPermission] or what else ZooKeeper has against
// it.
func (p *Persistent) Err() error {
	select {
	case <-p.ended:
		return p.err
	default:
		return nil
	}
}

// Set has the znode have data, from now on and whenever it is created again. It returns
// nil once it has them, or later ones. When the context ends before, it returns its
// cause, and goes on. Other errors: [recipes.ErrInvalidOption] where data are more than
// a server accepts, [recipes.ErrPermission], and that of Err.
func (p *Persistent) Set(ctx context.Context, data []byte) error {
	if err := checkData(p.at.Path, data); err != nil {
		return err
	}
	p.mu.Lock()
	p.data = slices.Clone(data)
	p.wanted++
	mine := p.wanted
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	for {
		p.mu.Lock()
		done, refusal, moved := p.written >= mine, p.refusal, p.moved
		p.mu.Unlock()
		if done {
			return setup.Fail("set", p.at.Path, refusal)
		}
		select {
		case <-moved:
		case <-p.ended:
			return setup.Fail("set", p.at.Path, p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the keeping and removes the znode. It returns nil once it is confirmed
// that nothing is left, and an error that wraps [recipes.ErrUnconfirmed] when the
// context ends before, or the connection is closed. The removal goes on until it is
// confirmed, the session is over, or the connection is closed. It may be called any
// number of times.
func (p *Persistent) Close(ctx context.Context) error {
	p.stop(ErrClosed)
	var err error
	select {
	case <-p.ended:
		err = p.removal
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return setup.Fail("close", p.at.Path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
	}
	return nil
}

// publish makes s the newest state. Only the keeper calls it.
func (p *Persistent) publish(s Presence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fmt.Sprint(s) == fmt.Sprint(p.current) {
		return
	}
	p.current = s
	select {
	case <-p.status:
	default:
	}
	p.status <- s
	p.move()
}

// next is what the znode should have, and which Set that was.
func (p *Persistent) next() (data []byte, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data, p.wanted
}

// wrote notes that ZooKeeper has what the nth Set was given, or refuses it.
func (p *Persistent) wrote(n uint64, refusal error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.refusal = n, refusal
	p.move()
}

func (p *Persistent) move() {
	close(p.moved)
	p.moved = make(chan struct{})
}
