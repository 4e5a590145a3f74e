package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/session"
)

// CandidateInfo is what everybody can see of a candidate.
type CandidateInfo struct {
	ID    string // path of its znode
	Name  string // its client name
	Token int64  // its fencing token, once it leads
}

// Candidates returns the candidates of the election at node in order of
// succession: the first one is the leader, or is about to learn that it is.
//
// Errors are those of [NewElection], and [ErrElectionOver] for an election that
// is being deleted. The answer is that of the server at hand, which may be a
// moment behind.
func Candidates(conn *zk.Conn, node string, opts ...Option) ([]CandidateInfo, error) {
	o, names, err := contenders(conn, node, opts)
	if err != nil {
		return nil, err
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
				return nil, fmt.Errorf("candidates at %s: %w", node, a.Err)
			}
			if a.Value != nil {
				all = append(all, *a.Value)
			}
		}
	}
	return all, nil
}

// CurrentLeader returns the first candidate of the election at node; found is
// false when there is nobody. Errors are those of [Candidates].
func CurrentLeader(conn *zk.Conn, node string, opts ...Option) (leader CandidateInfo, found bool, err error) {
	for {
		o, names, err := contenders(conn, node, opts)
		if err != nil || len(names) == 0 {
			return CandidateInfo{}, false, err
		}
		first, err := describe(o, conn, path.Join(node, names[0]))
		if err != nil {
			return CandidateInfo{}, false, fmt.Errorf("leader at %s: %w", node, err)
		}
		if first != nil {
			return *first, true, nil
		}
		// It left between the two requests.
	}
}

// contenders lists the election's candidates by name.
func contenders(conn *zk.Conn, node string, opts []Option) (*options, []string, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, nil, err
	}
	if err := checkNode(conn, node); err != nil {
		return nil, nil, err
	}
	children, err := ask(o, conn, func() ([]string, error) {
		children, _, err := conn.Children(node)
		return children, err
	})
	if err == nil {
		names, _, over := line.Order(children, endMarker)
		if !over {
			return o, names, nil
		}
		err = ErrElectionOver
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = ErrNoElection
	}
	return nil, nil, fmt.Errorf("candidates at %s: %w", node, err)
}

// describe reads a candidate's znode; nil when it is gone.
func describe(o *options, conn *zk.Conn, id string) (*CandidateInfo, error) {
	info, err := ask(o, conn, func() (*CandidateInfo, error) {
		data, stat, err := conn.Get(id)
		if err != nil {
			return nil, err
		}
		return &CandidateInfo{ID: id, Name: string(data), Token: stat.Czxid}, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return info, err
}

// Observation is one element of the stream that [Observe] returns.
type Observation struct {
	// Leader is the first candidate in line; nil when there is nobody.
	Leader *CandidateInfo
	// Err is set in the last element only, unless the context ended: what
	// ended the observation.
	Err error
}

// Observe streams who leads the election at node, without taking part in it:
// the leader of now first, or that there is nobody, and then each change. A
// reader that is late gets the newest observation. The channel is closed when
// ctx is done, and after a last element with [ErrElectionOver], [ErrConnClosed]
// or [ErrPermission]. Errors of the call itself are those of [Candidates].
//
// While the connection is down nothing is delivered, and the answers of a
// server that is cut off from its ensemble may be old: what is observed was
// true at some time, and tokens tell in which order. An observation costs one
// watch on the leader's znode, on the election node only while there is nobody.
// The client library cannot take a watch back, so that after ctx the watch
// stays until that leader goes.
func Observe(ctx context.Context, conn *zk.Conn, node string, opts ...Option) (<-chan Observation, error) {
	o, _, err := contenders(conn, node, append(slices.Clone(opts), WithContext(ctx)))
	if err != nil {
		return nil, err
	}
	v := &observer{conn: conn, node: node, c: make(chan Observation, 1), sub: session.Subscribe(conn, o.timeout)}
	go v.run(ctx)
	return v.c, nil
}

// observer belongs to its goroutine.
type observer struct {
	conn *zk.Conn
	node string
	c    chan Observation
	sub  *session.Subscription

	leader      *CandidateInfo
	leaderWatch <-chan zk.Event
	nobodyWatch <-chan zk.Event // on the children of the election node
	told        bool
}

func (v *observer) run(ctx context.Context) {
	defer close(v.c)
	defer v.sub.Close()
	for {
		epoch := v.sub.State().Epoch
		err := v.look(ctx)
		for err == nil && v.sub.State().Epoch == epoch {
			var again bool
			if again, err = v.wait(ctx); again {
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			v.publish(Observation{Err: fmt.Errorf("observe %s: %w", v.node, refine(err))})
			return
		}
	}
}

// wait returns again when there is reason to look.
func (v *observer) wait(ctx context.Context) (again bool, err error) {
	var event zk.Event
	select {
	case event = <-v.leaderWatch:
		v.leaderWatch = nil
	case event = <-v.nobodyWatch:
		v.nobodyWatch = nil
	case <-v.sub.Changed():
		if v.sub.State().Closed {
			return false, ErrConnClosed
		}
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if errors.Is(event.Err, zk.ErrClosing) {
		return false, ErrConnClosed
	}
	return true, nil
}

// watched is a read that has set a watch.
type watched struct {
	children []string
	leader   CandidateInfo
	watch    <-chan zk.Event
}

// look finds the leader and watches it, or, where there is none, the node.
func (v *observer) look(ctx context.Context) error {
	for {
		names, err := v.list(ctx)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			v.tell(nil)
			return nil
		}
		id := path.Join(v.node, names[0])
		if v.leader != nil && v.leader.ID == id && v.leaderWatch != nil {
			return nil
		}
		w, err := request.Read(ctx, v.conn, func() (w watched, err error) {
			data, stat, watch, err := v.conn.GetW(id)
			if err == nil {
				w = watched{leader: CandidateInfo{ID: id, Name: string(data), Token: stat.Czxid}, watch: watch}
			}
			return w, err
		})
		if errors.Is(err, zk.ErrNoNode) {
			continue // it left between the two requests
		}
		if err == nil {
			v.leaderWatch = w.watch
			v.tell(&w.leader)
		}
		return err
	}
}

// list returns the candidates in order. Only where there are none it watches
// the node, at most once at a time.
func (v *observer) list(ctx context.Context) ([]string, error) {
	read := func() (w watched, err error) {
		w.children, _, err = v.conn.Children(v.node)
		return w, err
	}
	for {
		w, err := request.Read(ctx, v.conn, read)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, ErrElectionOver
		}
		if err != nil {
			return nil, err
		}
		if w.watch != nil {
			v.nobodyWatch = w.watch
		}
		names, _, over := line.Order(w.children, endMarker)
		if over {
			return nil, ErrElectionOver
		}
		if len(names) > 0 || v.nobodyWatch != nil {
			return names, nil
		}
		read = func() (w watched, err error) {
			w.children, _, w.watch, err = v.conn.ChildrenW(v.node)
			return w, err
		}
	}
}

// tell publishes the leader unless it is the one published last.
func (v *observer) tell(leader *CandidateInfo) {
	same := v.told && (leader == nil) == (v.leader == nil) && (leader == nil || *leader == *v.leader)
	v.leader, v.told = leader, true
	if !same {
		v.publish(Observation{Leader: leader})
	}
}

// publish replaces what has not been read.
func (v *observer) publish(o Observation) {
	select {
	case <-v.c:
	default:
	}
	v.c <- o
}
