package raftlog

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// publishedStatus returns the status that the loop has published last.
func (n *Node) publishedStatus() core.Status {
	n.statusMu.Lock()
	defer n.statusMu.Unlock()
	return n.status
}

// Info returns the status of this peer. It does not block.
func (n *Node) Info() api.Info {
	s := n.publishedStatus()
	applied, _ := n.applied.load()
	info := api.Info{
		Peer: n.cfg.ownPeer(), Cluster: n.cfg.Cluster, Role: s.Role.String(), Leader: s.Leader, Term: s.Term,
		Lease: max(0, s.Lease-nodeClock{n}.Now()), FirstIndex: s.First, LastApplied: applied, CommitIndex: s.Commit,
		LastIndex: s.Last, PruneIndex: s.Prune, SnapshotIndex: s.Snapshot.Index, SnapshotSize: s.Snapshot.Size, RequestIDs: s.IDs,
	}
	if s.Role == core.Leader {
		info.Leader = info.Peer
	}
	if err := n.Err(); err != nil {
		info.Fault, info.Lease = err.Error(), 0
	}
	return info
}

// Membership returns the peers of the cluster according to the entries that this peer has
// applied. The error is the cause of ctx, [api.ErrClosed] or [api.ErrFault].
func (n *Node) Membership(ctx context.Context) (m api.Membership, err error) {
	err = n.callLoop(ctx, func(c *core.Core) { m = c.Membership() })
	return m, err
}

// service implements [rpc.Service], the calls of clients. Unlike the methods of Node, those of service do not
// forward requests to the leader, but return an error that names the leader.
type service struct{ node *Node }

func (s service) Propose(ctx context.Context, id api.RequestID, data []byte) (uint64, error) {
	index, _, err := s.node.proposeOnce(ctx, core.Request{Kind: api.KindState, ID: id, Data: data})
	return index, err
}

func (s service) ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (uint64, error) {
	index, _, err := s.node.proposeOnce(ctx, core.Request{Kind: api.KindConfig, ID: id, Voters: voters})
	return index, err
}

func (s service) Membership(ctx context.Context) (api.Membership, error) {
	return s.node.Membership(ctx)
}

func (s service) Info(context.Context) (api.Info, error) { return s.node.Info(), nil }

func (s service) Election(ctx context.Context, name string) (api.Election, error) {
	if err := wire.CheckElection(name); err != nil {
		return api.Election{}, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	if err := s.node.readLinearizable(ctx, (*core.Core).ReadReplica); err != nil {
		return api.Election{}, err
	}
	var election replica.Election
	if err := s.node.callLoop(ctx, func(c *core.Core) { election = c.Replica().Elections.Get(name) }); err != nil {
		return api.Election{}, err
	}
	e := api.Election{Ended: election.Ended}
	for _, c := range election.Candidates {
		info := candidateInfo(c)
		e.Candidates = append(e.Candidates, api.Candidate{ID: c.ID, Name: info.Name, Value: info.Value, Token: c.Token})
	}
	return e, nil
}

func (s service) Entries(ctx context.Context, from uint64, send func([]api.Event) error) error {
	return s.node.followLog(ctx, from, send)
}

// Snapshot returns the file of the newest snapshot.
func (s service) Snapshot(context.Context) (api.SnapshotStream, error) {
	r, err := s.node.newestSnapshot()
	if err != nil {
		return api.SnapshotStream{}, err
	}
	m := r.Meta()
	return api.SnapshotStream{Index: m.Index, Term: m.Term, Size: r.Size(), Data: snapshotFile{io.NewSectionReader(r.Raw(), 0, r.Size()), r}}, nil
}

// snapshotFile is the Data of the result of service.Snapshot: it reads the file, and Close closes the
// snapshot.
type snapshotFile struct {
	io.Reader
	io.Closer
}

// clientAddress returns the part of an address to which the limits of clients apply: the host, or for IPv6
// its /64 network, because one host can use all addresses of this network.
func clientAddress(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return host
}

// serveClient serves a client, or a peer that fetches a snapshot, on a connection until the connection ends.
func (n *Node) serveClient(conn *link.Conn) {
	client := conn.Remote()
	server := n.clients
	if client.Peer {
		server = n.joining
	}
	serve := server.Calls
	if client.Purpose == link.PurposeStream {
		serve = server.Stream
	}
	if err := serve(n.ctx, conn, clientAddress(conn.RemoteAddr().String())); err != nil {
		n.log.Debug("connection of a client ended", "client", client.ID, "err", err)
	}
}
