package grant

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Multi carries out ops as one transaction that commits only while the znode own,
// which stands for the grant, exists. It returns the responses to ops. The error
// is gone when the grant or the znode has ended, and nothing was applied then;
// zkerror.ErrUnconfirmed when the outcome is unknown; or what ZooKeeper has
// against ops, with the index, kind and path of the operation that has failed.
//
// The check comes first: only then do the responses tell its failure from that
// of ops.
func (g *Grant) Multi(conn *zk.Conn, own string, gone error, ops []any) ([]zk.MultiResponse, error) {
	return g.MultiAll(conn, []string{own}, gone, ops)
}

// MultiAll is Multi for a grant that several znodes stand for.
func (g *Grant) MultiAll(conn *zk.Conn, own []string, gone error, ops []any) ([]zk.MultiResponse, error) {
	if g.Err() != nil {
		return nil, gone
	}
	guarded := make([]any, 0, len(own)+len(ops))
	for _, path := range own {
		guarded = append(guarded, &zk.CheckVersionRequest{Path: path, Version: -1})
	}
	guarded = append(guarded, ops...)
	answered := request.Start(func() ([]zk.MultiResponse, error) { return conn.Multi(guarded...) })
	var a request.Answer[[]zk.MultiResponse]
	select {
	case a = <-answered:
	case <-g.ctx.Done():
		timer := time.NewTimer(limit.Confirm)
		defer timer.Stop()
		select {
		case a = <-answered:
		case <-timer.C:
			return nil, fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, g.Err())
		}
	}
	switch {
	case a.Err == nil:
		return a.Value[len(own):], nil
	case request.Transient(a.Err):
		return nil, fmt.Errorf("%w: %w", zkerror.ErrUnconfirmed, a.Err)
	case len(a.Value) < len(own):
		return nil, a.Err
	}
	for _, check := range a.Value[:len(own)] {
		if errors.Is(check.Error, zk.ErrNoNode) {
			return nil, gone
		}
	}
	return a.Value[len(own):], failedOperation(ops, a.Value[len(own):], a.Err)
}

// failedOperation returns err with the operation that has failed: the first one that has an
// error. Those before it have none, and those after it the error that they were not tried.
func failedOperation(ops []any, responses []zk.MultiResponse, err error) error {
	for i, r := range responses {
		if r.Error == nil || i >= len(ops) {
			continue
		}
		kind, path := "operation", ""
		switch op := ops[i].(type) {
		case *zk.CreateRequest:
			kind, path = "create", op.Path
		case *zk.SetDataRequest:
			kind, path = "set data of", op.Path
		case *zk.DeleteRequest:
			kind, path = "delete", op.Path
		case *zk.CheckVersionRequest:
			kind, path = "check version of", op.Path
		}
		return fmt.Errorf("operation %d of %d (index %d), %s %s: %w", i+1, len(ops), i, kind, path, err)
	}
	return err
}
