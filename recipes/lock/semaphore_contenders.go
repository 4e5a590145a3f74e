package lock

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Contenders returns the holders of leases and the waiting contenders, in the order of the queue. It sends one
// request to list them and one request for each contender. The server to which the client is connected answers, so
// the result may be slightly out of date. After the limit was lowered, a holder whose leases exceed the new limit
// is shown as waiting.
//
// With the protocols of Curator and kazoo each lease is a contender, also if one client has acquired several
// leases together. The contenders that wait for the mutex follow, with 0 Leases. Two requests list both
// directories, and with [WithSharedCount] or the layout of kazoo a third one reads the limit.
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	findAll := s.findContenders
	if s.protocol != nil {
		findAll = s.protocol.findContenders
	}
	all, err := findAll(ctx)
	return all, s.setup.Fail("list the contenders of", s.setup.Path, err)
}

// findContenders returns the contenders in the protocol of this library.
func (s *Semaphore) findContenders(ctx context.Context) ([]Contender, error) {
	children, err := connection.ListExisting(ctx, s.setup.Conn, s.setup.Path)
	if err != nil {
		return nil, err
	}
	var all []Contender
	taken, limit := int64(0), int64(s.limitOf(children))
	for _, name := range recognizedContenders(children) {
		n := leasesInName(name)
		taken += int64(n)
		all = append(all, Contender{Path: path.Join(s.setup.Path, name), Holds: taken <= limit, Leases: n})
	}
	return s.readNamesAndTokens(ctx, all)
}

// recognizedContenders returns the names of the contenders of a semaphore, starting with the head of the queue.
func recognizedContenders(children []string) []string {
	names, _, _ := contender.Order(children, "")
	return slices.DeleteFunc(names, func(name string) bool { return !contender.Recognized(name) })
}

// queuedNames returns the names of the contenders in the protocol of this library, starting with the head of the
// queue.
func (s *Semaphore) queuedNames(ctx context.Context) ([]string, error) {
	children, err := connection.ListExisting(ctx, s.setup.Conn, s.setup.Path)
	return recognizedContenders(children), err
}

// findContenders returns the leases in the protocol of Curator or kazoo, followed by the contenders that wait for
// the mutex. The holder of the mutex is omitted, because the last leases represent it.
func (c *mutexProtocol) findContenders(ctx context.Context) ([]Contender, error) {
	limit := connection.Start(func() (int, error) { return c.effectiveLimit(ctx) })
	found, err := connection.Each([]string{c.leases, c.mutex}, 2, func(_ int, dir string) ([]Contender, error) {
		children, err := connection.ListExisting(ctx, c.setup.Conn, dir)
		if err != nil {
			return nil, err
		}
		if dir == c.mutex {
			children = recognizedContenders(children)
			children = children[min(1, len(children)):]
		}
		var all []Contender
		for _, name := range children {
			all = append(all, Contender{Path: path.Join(dir, name)})
		}
		return c.readNamesAndTokens(ctx, all)
	})
	most := <-limit
	if err = cmp.Or(err, most.Err); err != nil {
		return nil, err
	}
	leases, waiting := found[0], found[1]
	slices.SortFunc(leases, func(a, b Contender) int { return cmp.Compare(a.Token, b.Token) })
	for i := range leases {
		leases[i].Leases, leases[i].Holds = 1, i < most.Value
	}
	return append(leases, waiting...), nil
}

// RequestRelease requests that contender c releases its leases as soon as it holds them. See [Mutex.RequestRelease].
// With the protocols of Curator and kazoo, programs of those libraries ignore requests, and c must have a lease:
// otherwise RequestRelease returns [recipes.ErrNotHeld].
func (s *Semaphore) RequestRelease(ctx context.Context, c Contender) error {
	switch {
	case s.protocol == nil:
		return s.requestRelease(ctx, s.setup.Path, c)
	case path.Dir(c.Path) == s.protocol.mutex:
		return s.setup.Fail("request the release of", c.Path, recipes.ErrNotHeld)
	}
	return s.requestRelease(ctx, s.protocol.leases, c)
}

// Join adds a contender for n leases to the queue without waiting for them. See [Mutex.Join]. The position is the
// number of earlier contenders, including contenders that hold leases. With the protocols of Curator and kazoo
// the methods of the Waiter return [recipes.ErrInvalid].
func (s *Semaphore) Join(ctx context.Context, n int) *Waiter {
	w := &Waiter{setup: s.setup, names: s.queuedNames, ctx: ctx, refused: checkCount("number of leases", n)}
	if s.protocol != nil {
		w.refused = fmt.Errorf("%w: Join: not supported with the layouts of other libraries", recipes.ErrInvalid)
	}
	return w.join(s.acquisition(n, false))
}
