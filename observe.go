package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/candidatedata"
	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// CandidateInfo describes a candidate to observers.
type CandidateInfo struct {
	// ID is the path of the candidate's znode.
	ID string
	// Name is the client name of the candidate. It is empty if it is larger than the
	// connection accepts.
	Name string
	// Value is the text that the candidate advertises with [WithValue]. It is empty if there
	// is none, or if name and value are larger than the connection accepts.
	Value string
	// Token is the fencing token that the candidate has as leader.
	Token int64
}

// Candidates returns the candidates of the election at node in the order of succession. The
// first candidate is the leader or is about to become the leader. The result is that of the
// server that conn is connected to, and may be slightly out of date. Candidates blocks
// until ZooKeeper has answered, for at most a session timeout per request.
//
// Errors are those of [NewElection], and [ErrElectionOver] if the election is being
// deleted.
func Candidates(conn *zk.Conn, node string, opts ...Option) ([]CandidateInfo, error) {
	o, names, err := contenders(conn, node, opts)
	if err != nil {
		return nil, err
	}
	if names, err = candidatesOf(o, conn, node, names); err != nil {
		return nil, fmt.Errorf("list candidates at %s: %w", node, err)
	}
	// Side by side, or a long line would take as many round trips.
	type answer = request.Answer[*CandidateInfo]
	var all []CandidateInfo
	for chunk := range slices.Chunk(names, 64) {
		answers := make([]<-chan answer, len(chunk))
		for i, name := range chunk {
			answers[i] = request.Start(func() (*CandidateInfo, error) { return describe(o, conn, path.Join(node, name)) })
		}
		for _, c := range answers {
			a := <-c
			if a.Err != nil {
				return nil, fmt.Errorf("list candidates at %s: %w", node, a.Err)
			}
			if a.Value != nil {
				all = append(all, *a.Value)
			}
		}
	}
	return all, nil
}

// CurrentLeader returns the first candidate of the election at node. found is false if the
// election has no candidates. Errors are those of [Candidates].
func CurrentLeader(conn *zk.Conn, node string, opts ...Option) (leader CandidateInfo, found bool, err error) {
	for {
		o, names, err := contenders(conn, node, opts)
		if err != nil {
			return CandidateInfo{}, false, err
		}
		name, err := firstOf(o.limit, conn, node, names)
		if err != nil {
			return CandidateInfo{}, false, fmt.Errorf("read leader at %s: %w", node, refine(err))
		}
		if name == "" {
			return CandidateInfo{}, false, nil
		}
		first, err := describe(o, conn, path.Join(node, name))
		if err != nil {
			return CandidateInfo{}, false, fmt.Errorf("read leader at %s: %w", node, err)
		}
		if first != nil {
			return *first, true, nil
		}
		// It left between the two requests.
	}
}

// contenders lists the election's candidates by name.
func contenders(conn *zk.Conn, node string, opts []Option) (*options, []string, error) {
	o, err := newOptions(conn, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := checkNode(conn, node); err != nil {
		return nil, nil, err
	}
	children, err := ask(o, conn, func() ([]string, error) {
		children, _, err := request.Children(conn, node)
		return children, err
	})
	if err == nil {
		names, _, over := contender.Order(children, endMarker)
		if !over {
			return o, names, nil
		}
		err = ErrElectionOver
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = ErrNoElection
	}
	return nil, nil, fmt.Errorf("list candidates at %s: %w", node, err)
}

// candidatesOf returns those of names that are candidates.
func candidatesOf(o *options, conn *zk.Conn, node string, names []string) ([]string, error) {
	ctx, cancel := o.limit()
	defer cancel()
	names, _, err := queue.Contenders(ctx, conn, node, names)
	return names, refine(err)
}

// firstOf returns the first of names that is a candidate; "" for none. Those that have
// gone are left out.
func firstOf(limit func() (context.Context, context.CancelFunc), conn *zk.Conn, node string, names []string) (string, error) {
	ctx, cancel := limit()
	defer cancel()
	for i := range names {
		found, _, err := queue.Contenders(ctx, conn, node, names[i:i+1])
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", nil
}

// describe reads a candidate's znode; nil when it is gone.
func describe(o *options, conn *zk.Conn, id string) (*CandidateInfo, error) {
	info, err := ask(o, conn, func() (*CandidateInfo, error) {
		data, stat, err := request.Get(conn, id)
		if err != nil && !isNameTooLarge(err) {
			return nil, err
		}
		return candidateInfo(id, data, stat.Czxid), nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return info, err
}

func candidateInfo(id string, data []byte, token int64) *CandidateInfo {
	name, value := candidatedata.Decode(data)
	return &CandidateInfo{ID: id, Name: name, Value: value, Token: token}
}

// isNameTooLarge reports whether a candidate's data, which are its name, are larger than
// the connection accepts. A candidate of this library has no such name.
func isNameTooLarge(err error) bool { return errors.Is(err, ErrTooLarge) }

// Observation is an element of the stream that [Observe] returns.
type Observation struct {
	// Leader is the first candidate, or nil if there are no candidates.
	Leader *CandidateInfo
	// Err is the reason why the observation has ended. It is set only in the last element.
	Err error
}

// Observe watches the leader of the election at node without joining the election. The
// returned channel delivers the current leader, or its absence, and then each
// change. A slow reader receives only the newest observation. The channel is closed when
// ctx is done, or after a last element with the error that ended the observation, for
// instance [ErrElectionOver], [ErrConnClosed], [ErrPermission] or [ErrTooLarge]. Errors
// returned by Observe itself are those of [Candidates].
//
// Nothing is delivered while the connection is down, and a server that is partitioned from
// its ensemble may deliver an old leader. Compare tokens to order observations. All
// observations of an election over one connection share one watch, on the leader's znode
// or, if there is no leader, on the election node. The client library cannot remove that
// watch: after ctx is done it remains until the leader leaves, and later calls reuse it.
func Observe(ctx context.Context, conn *zk.Conn, node string, opts ...Option) (<-chan Observation, error) {
	o, _, err := contenders(conn, node, append(slices.Clone(opts), WithContext(ctx)))
	if err != nil {
		return nil, err
	}
	sub := session.Subscribe(conn, o.timeout)
	v := &observer{
		conn: conn, node: node, c: make(chan Observation, 1), sub: sub,
		candidates: watch.NewReader(conn, sub, node, watch.Children),
	}
	go v.run(ctx)
	return v.c, nil
}

// observer belongs to its goroutine.
type observer struct {
	conn       *zk.Conn
	node       string
	c          chan Observation
	sub        *session.Subscription
	candidates *watch.Reader // of the election node, used if there is no leader
	first      *watch.Reader // of the znode of the first candidate
	firstID    string

	leader *CandidateInfo
	told   bool
}

func (v *observer) run(ctx context.Context) {
	defer close(v.c)
	defer v.sub.Close()
	for {
		watched, err := v.look(ctx)
		if err == nil {
			_, err = watched.Wait(ctx, nil)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			latest.Send(v.c, Observation{Err: fmt.Errorf("observe %s: %w", v.node, refine(err))})
			return
		}
	}
}

// look finds the leader, and returns the reader whose watch notices a change.
func (v *observer) look(ctx context.Context) (*watch.Reader, error) {
	for {
		children, err := request.Read(ctx, v.conn, func() ([]string, error) {
			children, _, err := request.Children(v.conn, v.node)
			return children, err
		})
		name, err := v.firstOf(ctx, children, err)
		if err == nil && name == "" {
			var found watch.Found
			found, err = v.candidates.Read(ctx)
			name, err = v.firstOf(ctx, found.Children, err)
		}
		if err != nil {
			return nil, err
		}
		if name == "" {
			v.tell(nil)
			return v.candidates, nil
		}
		if id := path.Join(v.node, name); id != v.firstID {
			v.firstID, v.first = id, watch.NewReader(v.conn, v.sub, id, watch.Data)
		}
		found, err := v.first.Read(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it left between the two requests
		}
		if err != nil && !isNameTooLarge(err) {
			return nil, err
		}
		v.tell(candidateInfo(v.firstID, found.Data, found.Stat.Czxid))
		return v.first, nil
	}
}

// firstOf returns the first candidate, given the result of listing the election node;
// "" if there are no candidates.
func (v *observer) firstOf(ctx context.Context, children []string, err error) (string, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return "", ErrElectionOver
	}
	if err != nil {
		return "", err
	}
	names, _, over := contender.Order(children, endMarker)
	if over {
		return "", ErrElectionOver
	}
	return firstOf(func() (context.Context, context.CancelFunc) { return ctx, func() {} }, v.conn, v.node, names)
}

// tell publishes the leader unless it is the one published last.
func (v *observer) tell(leader *CandidateInfo) {
	same := v.told && (leader == nil) == (v.leader == nil) && (leader == nil || *leader == *v.leader)
	v.leader, v.told = leader, true
	if !same {
		latest.Send(v.c, Observation{Leader: leader})
	}
}
