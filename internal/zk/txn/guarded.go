package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Guarded executes ops as one transaction, which the servers apply only if all znodes of the grant, own, exist, and
// returns the responses to ops. If the grant has ended or one of its znodes was deleted, the servers apply nothing,
// and Guarded returns the error notHeld. If the outcome is unknown, it returns connection.ErrUnconfirmed. If
// servers do not accept the request, because of its size or because of an operation, Guarded sends nothing, and
// returns connection.ErrInvalid. If an operation has failed, it returns the error of ZooKeeper, with the index,
// kind and path of the operation.
//
// The checks are the first operations of the transaction, so that the responses distinguish their failure from a
// failure of ops.
func Guarded(conn *zk.Conn, g *connection.Grant, own []string, notHeld error, ops []any) ([]zk.MultiResponse, error) {
	if g.Err() != nil {
		return nil, notHeld
	}
	guarded := make([]any, 0, len(own)+len(ops))
	for _, path := range own {
		guarded = append(guarded, &zk.CheckVersionRequest{Path: path, Version: -1})
	}
	guarded = append(guarded, ops...)
	if _, err := Size(guarded); errors.Is(err, connection.ErrInvalid) {
		return nil, err
	} else if err != nil {
		// Do not send the request, because the server would close the connection, which endangers all leases of the
		// session.
		return nil, fmt.Errorf("%w: %w", connection.ErrInvalid, err)
	}
	answered := connection.Start(func() ([]zk.MultiResponse, error) { return conn.Multi(guarded...) })
	var a connection.Answer[[]zk.MultiResponse]
	select {
	case a = <-answered:
	case <-g.Context().Done():
		select {
		case a = <-answered:
		case <-time.After(limit.Confirm):
			return nil, fmt.Errorf("%w: %w", connection.ErrUnconfirmed, g.Err())
		}
	}
	switch {
	case a.Err == nil:
		return a.Value[len(own):], nil
	case connection.Transient(a.Err):
		return nil, fmt.Errorf("%w: %w", connection.ErrUnconfirmed, a.Err)
	case len(a.Value) < len(own):
		return nil, connection.Reject(context.Background(), conn, a.Err)
	}
	for _, check := range a.Value[:len(own)] {
		if errors.Is(check.Error, zk.ErrNoNode) {
			return nil, notHeld
		}
	}
	err := nameOperation(ops, a.Value[len(own):], a.Err)
	return a.Value[len(own):], connection.Reject(context.Background(), conn, err)
}

// nameOperation returns err with the description of the operation that has failed, which is the first operation
// with an error.
func nameOperation(ops []any, responses []zk.MultiResponse, err error) error {
	i := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
	if i < 0 || i >= len(ops) {
		return err
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
