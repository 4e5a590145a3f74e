package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/record"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// CandidateInfo describes a candidate to observers.
type CandidateInfo struct {
	// ID is the path of the candidate's znode.
	ID string
	// Name is the client name of the candidate. It is empty if the connection has no right to
	// read it, or if it is larger than the connection accepts.
	Name string
	// Value is the text that the candidate advertises with [WithValue]. It is empty if the
	// candidate advertises none, or if Name is empty because it cannot be read.
	Value string
	// Token is the fencing token that the candidate has as leader.
	Token int64
}

// Candidates returns the candidates of the election at node in the order of succession. The
// first candidate is the leader or is about to become the leader. The result is that of the
// server that conn is connected to, and may be slightly out of date. Candidates blocks
// until ZooKeeper has answered or ctx is done, for at most a session timeout per request.
// Options that are only for candidates are ignored, and so is [WithContext].
//
// Errors are those of [NewElection], and [ErrElectionOver] if the election is being
// deleted.
func Candidates(ctx context.Context, conn *zk.Conn, node string, opts ...Option) ([]CandidateInfo, error) {
	o, names, err := listNames(ctx, conn, node, opts)
	if err != nil {
		return nil, err
	}
	all, err := describeAll(o, conn, node, names)
	if err != nil {
		return nil, fmt.Errorf("list candidates at %s: %w", node, connection.Explain(conn, refine(err)))
	}
	return all, nil
}

// listNames lists the children of the election node that are named like candidates, in the order
// of succession.
func listNames(ctx context.Context, conn *zk.Conn, node string, opts []Option) (*options, []string, error) {
	o, err := newOptions(conn, opts)
	if err != nil {
		return nil, nil, err
	}
	if o.ctx = ctx; ctx == nil {
		return nil, nil, fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if err := checkNode(conn, node); err != nil {
		return nil, nil, err
	}
	children, err := read(o.limit, conn, func() ([]string, error) {
		children, _, err := connection.Children(conn, node)
		return children, err
	})
	if err == nil {
		names, _, ended := contender.Order(children, tombstone)
		if !ended {
			return o, names, nil
		}
		err = ErrElectionOver
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = ErrNoElection
	}
	return nil, nil, fmt.Errorf("list candidates at %s: %w", node, connection.Explain(conn, refine(err)))
}

// describeAll describes those of names that are candidates.
func describeAll(o *options, conn *zk.Conn, node string, names []string) ([]CandidateInfo, error) {
	ctx, cancel := o.limit()
	defer cancel()
	names, _, err := queue.Contenders(ctx, conn, node, names)
	if err != nil {
		return nil, err
	}
	// Several requests are in flight, so that a long queue does not take as many round trips.
	const inFlight = 64
	type result = connection.Answer[*CandidateInfo]
	var all []CandidateInfo
	for chunk := range slices.Chunk(names, inFlight) {
		results := make([]<-chan result, len(chunk))
		for i, name := range chunk {
			results[i] = connection.Start(func() (*CandidateInfo, error) { return describe(o, conn, path.Join(node, name)) })
		}
		for _, c := range results {
			r := <-c
			if r.Err != nil {
				return nil, r.Err
			}
			if r.Value != nil {
				all = append(all, *r.Value)
			}
		}
	}
	return all, nil
}

// describe reads the znode of a candidate. It returns nil if the znode does not exist.
func describe(o *options, conn *zk.Conn, id string) (*CandidateInfo, error) {
	info, err := read(o.limit, conn, func() (*CandidateInfo, error) {
		data, stat, err := connection.Get(conn, id)
		if err != nil && !connection.IsUnreadable(err) {
			return nil, err
		}
		return newCandidateInfo(id, data, stat), nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return info, err
}

// newCandidateInfo describes a candidate, given its znode. data is nil if it cannot be read, which is
// possible for candidates of other libraries.
func newCandidateInfo(id string, data []byte, stat *zk.Stat) *CandidateInfo {
	name, value := record.Decode(data)
	return &CandidateInfo{ID: id, Name: name, Value: value, Token: stat.Czxid}
}
