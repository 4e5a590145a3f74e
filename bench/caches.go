package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/cache"
)

const (
	// cachedSize is the number of bytes of data in each znode that a cache contains.
	cachedSize = 100
	// cachedName is the name of the child znode that writeCached writes.
	cachedName = "written"
	// cachedNumber is the number of znodes that fill a cache.
	cachedNumber = 10000
	// baselineParallelism is the number of requests that the baseline sends before it waits for replies.
	baselineParallelism = 64
)

func (l *localContestant) fillCache(session int, dir string, n int) (time.Duration, error) {
	if l.implementation.fillCache == nil {
		return 0, errors.ErrUnsupported
	}
	return l.implementation.fillCache(l.conn(session), dir, n)
}

func (l *localContestant) watchCache(session int, dir string) error {
	if l.implementation.watchCache == nil {
		return errors.ErrUnsupported
	}
	l.updates = make(chan error, 1)
	return l.implementation.watchCache(l.conn(session), dir, l.updates)
}

func (l *localContestant) writeCached(session int, dir string) (time.Duration, error) {
	begin := now()
	if _, err := l.conn(session).Set(dir+"/"+cachedName, make([]byte, cachedSize), -1); err != nil {
		return 0, err
	}
	select {
	case err := <-l.updates:
		return time.Duration(now() - begin), err
	case <-time.After(responseTimeout):
		return 0, errors.New("the cache has not reported the write in time")
	}
}

// fillBaselineCache lists dir, and reads each child with a watch into a map. It sends many requests before it waits
// for replies.
func fillBaselineCache(conn *zk.Conn, dir string, n int) (time.Duration, error) {
	begin := now()
	names, _, _, err := conn.ChildrenW(dir)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	cached := make(map[string][]byte, len(names))
	pending, failures := make(chan string), make(chan error, baselineParallelism)
	var reading sync.WaitGroup
	for range baselineParallelism {
		reading.Go(func() {
			for name := range pending {
				data, _, _, err := conn.GetW(dir + "/" + name)
				if err != nil {
					failures <- err
					return
				}
				mu.Lock()
				cached[name] = data
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		select {
		case pending <- name:
		case err := <-failures:
			return 0, err
		}
	}
	close(pending)
	reading.Wait()
	took := time.Duration(now() - begin)
	if len(cached) != n {
		return 0, fmt.Errorf("the baseline has read %d instead of %d znodes", len(cached), n)
	}
	return took, nil
}

// watchBaselineCache reads the znode cachedName each time the watch on it fires, and then sends to updates.
func watchBaselineCache(conn *zk.Conn, dir string, updates chan<- error) error {
	znode := dir + "/" + cachedName
	_, _, watch, err := conn.GetW(znode)
	if err != nil {
		return err
	}
	go func() {
		for event := <-watch; event.Type == zk.EventNodeDataChanged && err == nil; event = <-watch {
			_, _, watch, err = conn.GetW(znode)
			updates <- err
		}
	}()
	return nil
}

func (l libraryRecipes) newCache(conn *zk.Conn, dir string) (*cache.Cache, error) {
	return cache.New(conn, dir, cache.Children, l.option)
}

func (l libraryRecipes) fillCache(conn *zk.Conn, dir string, n int) (time.Duration, error) {
	begin := now()
	c, err := l.newCache(conn, dir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	select {
	case <-c.Filled():
	case <-time.After(responseTimeout * time.Duration(1+n/cachedNumber)):
		return 0, errors.New("the cache was not filled in time")
	}
	took := time.Duration(now() - begin)
	if c.Len() != n+1 {
		return 0, fmt.Errorf("the cache contains %d instead of %d znodes", c.Len(), n+1)
	}
	return took, nil
}

func (l libraryRecipes) watchCache(conn *zk.Conn, dir string, updates chan<- error) error {
	c, err := l.newCache(conn, dir)
	if err != nil {
		return err
	}
	filled := make(chan struct{})
	go func() {
		for e := range c.Events() {
			switch {
			case e.Kind == cache.Fresh:
				close(filled)
			case e.Kind == cache.Changed && path.Base(e.Path) == cachedName:
				updates <- nil
			}
		}
	}()
	<-filled
	return nil
}

func (p *process) fillCache(session int, dir string, n int) (time.Duration, error) {
	return p.callForDuration("fill_cache", session, dir, n)
}

func (p *process) watchCache(session int, dir string) error {
	_, err := p.call("watch_cache", session, dir)
	return err
}

func (p *process) writeCached(session int, dir string) (time.Duration, error) {
	return p.callForDuration("write_cached", session, dir)
}

// measureCacheFills measures the time to fill a cache. Each turn has a new session, because a cache leaves its
// watches on the server when it is closed.
func (b *bench) measureCacheFills(ctx context.Context, r *row) error {
	defer reset(b.contestants)
	dir, err := b.server.newDirWith(cachedNumber, make([]byte, cachedSize))
	if err != nil {
		return err
	}
	var turns []contestantTurn
	for _, c := range b.contestants {
		turns = append(turns, newTurn(c, func(context.Context) (time.Duration, error) {
			if err := c.connect(0); err != nil {
				return 0, err
			}
			took, err := c.fillCache(0, dir, cachedNumber)
			return took, errors.Join(err, c.reset())
		}))
	}
	return b.interleaveTurns(ctx, []*row{r}, 4, max(2, b.rounds/8), b.longPause, turns)
}

// measureCacheUpdates measures the time from a write in one session until a cache in another session reports the
// change.
func (b *bench) measureCacheUpdates(ctx context.Context, r *row) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.contestants {
		dir, err := b.server.newDir()
		if err != nil {
			return err
		}
		if _, err := b.server.conn.Create(dir+"/"+cachedName, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		if err := connectSessions(c, 2); err != nil {
			return err
		}
		switch err := c.watchCache(0, dir); {
		case errors.Is(err, errors.ErrUnsupported):
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		turns = append(turns, newTurn(c, func(context.Context) (time.Duration, error) { return c.writeCached(1, dir) }))
	}
	if err := b.interleaveTurns(ctx, []*row{r}, b.warmJoins, 0, time.Millisecond, turns); err != nil {
		return err
	}
	return b.interleaveTurns(ctx, []*row{r}, 0, b.rounds, b.pause, turns)
}
