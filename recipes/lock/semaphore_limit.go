package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Limit returns the stored limit, or the limit given to the constructor if no limit is stored. The result is
// not older than the call.
func (s *Semaphore) Limit(ctx context.Context) (int, error) {
	if s.protocol != nil {
		limit, err := s.protocol.currentLimit(ctx)
		return limit, s.setup.Fail("read the limit of", s.setup.Path, err)
	}
	children, _, err := s.listNewest(ctx)
	if err != nil && !connection.IsNoNode(ctx, err) {
		return 0, s.setup.Fail("read the limit of", s.setup.Path, err)
	}
	return s.limitOf(children), nil
}

// limitOf returns the limit that applies, given the children of the semaphore's znode.
func (s *Semaphore) limitOf(children []string) int {
	if limit, _, ok := storedLimit(children); ok {
		return limit
	}
	return s.given.limit
}

// givenLimit is the limit that a program gives to the constructor of a semaphore.
type givenLimit struct {
	limit    int
	log      *slog.Logger
	lastSeen atomic.Int64 // the stored limit that this program has last read or set; 0 before that
}

// warnIfDifferent logs a warning if the stored limit is not the limit of this program, once for each stored
// limit.
func (g *givenLimit) warnIfDifferent(stored int) {
	if before := g.lastSeen.Swap(int64(stored)); before != int64(stored) && stored != g.limit {
		g.log.Warn("the stored limit applies instead of the limit of this program", "stored", stored, "given", g.limit)
	}
}

// SetLimit stores the limit for all current and later contenders, regardless of the limits
// given to constructors. The stored limit remains if there are no contenders, and prevents
// ZooKeeper from removing the znode of the semaphore.
//
// It returns [recipes.ErrUnconfirmed] if it is unknown whether the limit was or will be
// changed, because the context or the session ended before ZooKeeper has answered, and
// [recipes.ErrInvalid] if limit is not positive, or with the protocols of other
// libraries, in which the limit cannot be changed, except by [WithSharedCount].
func (s *Semaphore) SetLimit(ctx context.Context, limit int) error {
	err := checkCount("limit", limit)
	if err == nil {
		s.given.lastSeen.Store(int64(limit))
		switch {
		case s.protocol == nil:
			err = s.storeLimit(ctx, limit)
		case s.protocol.count != nil:
			_, err = s.protocol.count.Set(ctx, limit)
		default:
			err = fmt.Errorf("%w: SetLimit: not supported with the layouts of other libraries", recipes.ErrInvalid)
		}
	}
	return s.setup.Fail("set the limit of", s.setup.Path, err)
}

// storeLimit replaces the stored limit in one transaction, which fails if the znode has changed
// since it was listed.
func (s *Semaphore) storeLimit(ctx context.Context, limit int) error {
	writer := txn.Shared(txn.Config{Options: s.setup.Options, Dir: s.setup.Path})
	for {
		children, stat, err := s.listNewest(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			if err = s.setup.MakeDir(ctx); err == nil {
				continue
			}
		}
		if err == nil {
			err = s.setup.CheckAccess(ctx, s.setup.Path)
		}
		if err != nil {
			return err
		}
		ops := []any{&zk.SetDataRequest{Path: s.setup.Path, Data: []byte(strconv.Itoa(limit)), Version: stat.Version}}
		for _, name := range children {
			if _, _, ok := contender.ParseLimit(name); ok {
				ops = append(ops, &zk.DeleteRequest{Path: path.Join(s.setup.Path, name), Version: -1})
			}
		}
		ops = append(ops, &zk.CreateRequest{Path: path.Join(s.setup.Path, limitPrefix(limit)), Acl: s.setup.ACL, Flags: zk.FlagSequence})
		outcome, err := writer.Run(ctx, txn.Transaction{Ops: ops, Alone: true})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, txn.ErrUnknown):
			return fmt.Errorf("%w: %w", connection.ErrUnconfirmed, err)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			continue // another client has changed the limit, or the znode was deleted
		case errors.Is(err, zk.ErrNotEmpty) && outcome.Failed > 0:
			return fmt.Errorf("%w: delete the children of %s, in which an earlier limit is stored", err, ops[outcome.Failed].(*zk.DeleteRequest).Path)
		}
		return err
	}
}

// listedChildren is a listing of the children of the semaphore's znode.
type listedChildren struct {
	children []string
	stat     *zk.Stat
}

// listNewest lists the semaphore's children as of a time after the call. It calls Sync first, because a server
// that lags behind may show an earlier limit.
func (s *Semaphore) listNewest(ctx context.Context) ([]string, *zk.Stat, error) {
	l, err := connection.Read(ctx, s.setup.Conn, func() (listedChildren, error) {
		if _, err := s.setup.Conn.Sync(s.setup.Path); err != nil {
			return listedChildren{}, err
		}
		children, stat, err := connection.Children(s.setup.Conn, s.setup.Path)
		return listedChildren{children, stat}, err
	})
	return l.children, l.stat, err
}
