package group

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Persistent maintains an ephemeral znode until it is closed: if the znode is removed,
// because the session has expired or another client has deleted it, it is created again.
// Its methods may be called from any goroutine. It must be closed.
type Persistent struct {
	at     *recipe.Setup
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

// Presence reports whether a znode is present.
type Presence struct {
	// Present reports whether the znode exists and belongs to the current session.
	Present bool
	// Token is the znode's creation zxid, which increases each time the znode is created
	// again, and Session is the ID of its session. Both are 0 if the znode is absent,
	// except that they describe the znode of another client while Err is [ErrTaken].
	Token, Session int64
	// Err is the reason why the znode is absent: [ErrTaken], [recipes.ErrSessionExpired] or
	// [recipes.ErrDeleted] while it is being created again; in the last element
	// [ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission] or another error of
	// ZooKeeper. It is nil before the first attempt has ended, and if the znode is present.
	Err error
}

// maxData bounds a znode's data: a request that is longer than the megabyte which a
// server accepts by default makes it close the connection, each time anew.
const maxData = 0xfffff - 4096

// Keep creates and maintains an ephemeral znode with data at path. Missing parents are
// created, the direct parent as a container. Keep does not wait for ZooKeeper; see
// [Persistent.Await]. Errors: [recipes.ErrNilConn], [recipes.ErrInvalidPath],
// [recipes.ErrInvalidOption].
func Keep(conn *zk.Conn, path string, data []byte, opts ...recipes.Option) (*Persistent, error) {
	s, err := recipe.New(conn, path, opts)
	if err != nil {
		return nil, err
	}
	return keep(s, data)
}

func keep(s *recipe.Setup, data []byte) (*Persistent, error) {
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
		return fmt.Errorf("%w: the data has %d bytes, more than a server accepts", recipes.ErrInvalidOption, len(data))
	}
	return nil
}

// Await blocks until the znode is present, and returns nil then. It returns the context's
// cause if the context is done first, and the error of Err if the Persistent has ended.
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
			return recipe.Fail("keep", p.at.Path, p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Status returns a channel that delivers the newest state. A slow reader misses earlier
// states. All calls return the same channel, which is closed after the last state. The
// state is the last one that ZooKeeper has reported, and does not change while the
// connection is down.
func (p *Persistent) Status() <-chan Presence { return p.status }

// Current returns the newest state.
func (p *Persistent) Current() Presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Done returns a channel that is closed when the znode is not maintained any more.
func (p *Persistent) Done() <-chan struct{} { return p.ended }

// Err returns nil while the znode is maintained, and afterwards the reason why it is not:
// [ErrClosed], [recipes.ErrConnClosed], [recipes.ErrPermission] or another error of
// ZooKeeper.
func (p *Persistent) Err() error {
	select {
	case <-p.ended:
		return p.err
	default:
		return nil
	}
}

// Set changes the data of the znode, now and whenever it is created again. It blocks until
// the znode has this data or the data of a later Set, and returns nil then. If the context
// is done first, Set returns its cause, and the change is still made. Other errors:
// [recipes.ErrInvalidOption] if the data is larger than a server accepts,
// [recipes.ErrPermission], and the error of Err.
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
			return recipe.Fail("set", p.at.Path, refusal)
		}
		select {
		case <-moved:
		case <-p.ended:
			return recipe.Fail("set", p.at.Path, p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops maintaining the znode and removes it. It returns nil when the removal is
// confirmed, and an error that wraps [recipes.ErrUnconfirmed] if the context is done first
// or the connection is closed. The removal continues in the background until it is
// confirmed, the session ends or the connection is closed. Close may be called repeatedly.
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
		return recipe.Fail("close", p.at.Path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
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
	latest.Send(p.status, s)
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
