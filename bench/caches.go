package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
)

// cacher is a contestant that has a cache of a znode and its children.
type cacher interface {
	// fill has the session, which is connected, fill a cache of dir and its n
	// children, from its making until everything is in memory.
	fill(session int, dir string, n int) (time.Duration, error)
	// watch fills a cache of dir, which stays until reset.
	watch(session int, dir string) error
	// write has the session write to the child of dir that is called cachedName,
	// and returns the time from just before until the cache of watch has told of it.
	write(session int, dir string) (time.Duration, error)
}

const (
	// cachedSize is that of the data of what is cached, in bytes.
	cachedSize = 100
	// cachedName is that of the znode that is written to.
	cachedName = "written"
	// cachedMany is how many znodes a cache is filled with.
	cachedMany = 10000
	// floorAbreast is how many requests the floor sends at a time.
	floorAbreast = 64
)

// caching is what the floor and this library keep of a watch, which ends with its
// session.
type caching struct {
	told chan error // of each write, once
}

// fill of the floor is one listing and one read of each child, with watches, many at
// a time, into a map.
func (f *floor) fill(session int, dir string, n int) (time.Duration, error) {
	conn := f.conn(session)
	begin := now()
	names, _, _, err := conn.ChildrenW(dir)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	memory := make(map[string][]byte, len(names))
	queue, failures := make(chan string), make(chan error, floorAbreast)
	var reading sync.WaitGroup
	for range floorAbreast {
		reading.Go(func() {
			for name := range queue {
				data, _, _, err := conn.GetW(dir + "/" + name)
				if err != nil {
					failures <- err
					return
				}
				mu.Lock()
				memory[name] = data
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		select {
		case queue <- name:
		case err := <-failures:
			return 0, err
		}
	}
	close(queue)
	reading.Wait()
	took := time.Duration(now() - begin)
	if len(memory) != n {
		return 0, fmt.Errorf("the floor has read %d znodes of %d", len(memory), n)
	}
	return took, nil
}

// watch of the floor reads what is written again when its watch has fired.
func (f *floor) watch(session int, dir string) error {
	conn, node := f.conn(session), dir+"/"+cachedName
	_, _, watch, err := conn.GetW(node)
	if err != nil {
		return err
	}
	c := &caching{told: make(chan error, 1)}
	f.caching = c
	go func() {
		for event := <-watch; event.Type == zk.EventNodeDataChanged && err == nil; event = <-watch {
			_, _, watch, err = conn.GetW(node)
			c.told <- err
		}
	}()
	return nil
}

func (f *floor) write(session int, dir string) (time.Duration, error) {
	return f.caching.write(f.conn(session), dir)
}

// write writes, and waits until that is told.
func (c *caching) write(conn *zk.Conn, dir string) (time.Duration, error) {
	begin := now()
	if _, err := conn.Set(dir+"/"+cachedName, make([]byte, cachedSize), -1); err != nil {
		return 0, err
	}
	select {
	case err := <-c.told:
		return time.Duration(now() - begin), err
	case <-time.After(answerLimit):
		return 0, errors.New("a cache does not tell of a write")
	}
}

func (l *library) cache(session int, dir string) (*cache.Cache, error) {
	return cache.New(l.conn(session), dir, cache.Children, recipes.WithSessionTimeout(sessionTimeout))
}

func (l *library) fill(session int, dir string, n int) (time.Duration, error) {
	begin := now()
	c, err := l.cache(session, dir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	select {
	case <-c.Filled():
	case <-time.After(answerLimit):
		return 0, errors.New("a cache is not filled")
	}
	took := time.Duration(now() - begin)
	if c.Len() != n+1 {
		return 0, fmt.Errorf("the cache has %d znodes of %d", c.Len(), n+1)
	}
	return took, nil
}

func (l *library) watch(session int, dir string) error {
	c, err := l.cache(session, dir)
	if err != nil {
		return err
	}
	watching := &caching{told: make(chan error, 1)}
	l.caching = watching
	filled := make(chan struct{})
	go func() {
		for e := range c.Events() {
			switch {
			case e.Kind == cache.Fresh:
				close(filled)
			case e.Kind == cache.Changed && path.Base(e.Path) == cachedName:
				watching.told <- nil
			}
		}
	}()
	<-filled
	return nil
}

func (l *library) write(session int, dir string) (time.Duration, error) {
	return l.caching.write(l.conn(session), dir)
}

func (p *peer) fill(session int, dir string, n int) (time.Duration, error) {
	took, err := p.ask("fill", session, dir, n)
	return time.Duration(took), err
}

func (p *peer) watch(session int, dir string) error {
	_, err := p.ask("watch", session, dir)
	return err
}

func (p *peer) write(session int, dir string) (time.Duration, error) {
	took, err := p.ask("write", session, dir)
	return time.Duration(took), err
}

// fills measures the filling of caches, each in a new session: a cache that was closed
// leaves watches.
func (b *bench) fills(ctx context.Context, r *row) error {
	defer b.reset()
	dir, err := b.control.newDir()
	if err != nil {
		return err
	}
	for made := 0; made < cachedMany; {
		var ops []any
		for range 500 {
			ops = append(ops, &zk.CreateRequest{
				Path: fmt.Sprintf("%s/item-%05d", dir, made), Data: make([]byte, cachedSize), Acl: zk.WorldACL(zk.PermAll),
			})
			made++
		}
		if _, err := b.control.conn.Multi(ops...); err != nil {
			return err
		}
	}
	turns := map[string]turn{}
	for _, c := range b.contestants {
		caches, ok := c.(cacher)
		if !ok {
			continue
		}
		turns[c.name()] = timed(func(context.Context) (time.Duration, error) {
			if err := c.connect(0); err != nil {
				return 0, err
			}
			took, err := caches.fill(0, dir, cachedMany)
			return took, errors.Join(err, c.reset())
		})
	}
	return b.interleave(ctx, []*row{r}, 4, max(2, b.rounds/8), b.bigPause, turns)
}

// writes measures the time from a write of one session to the event of a cache that
// another has.
func (b *bench) writes(ctx context.Context, r *row) error {
	defer b.reset()
	turns := map[string]turn{}
	for _, c := range b.contestants {
		caches, ok := c.(cacher)
		if !ok {
			continue
		}
		dir, err := b.control.newDir()
		if err != nil {
			return err
		}
		if _, err := b.control.conn.Create(dir+"/"+cachedName, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		if err := errors.Join(c.connect(0), c.connect(1), caches.watch(0, dir)); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		turns[c.name()] = timed(func(context.Context) (time.Duration, error) { return caches.write(1, dir) })
	}
	if err := b.interleave(ctx, []*row{r}, b.warmJoins, 0, time.Millisecond, turns); err != nil {
		return err
	}
	return b.interleave(ctx, []*row{r}, 0, b.rounds, b.pause, turns)
}
