package mongodb_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/testenv/operators"
)

// operatedServer is a fake server on which package operators can perform its operations, such as a backup.
type operatedServer struct {
	*fakeServer
	backup map[string][]bson.D // backup is a backup of the documents.
	events int                 // events is the length of the oplog at the time of the backup.
	thaw   chan struct{}       // thaw is closed when the suspended server continues.
}

func (s *operatedServer) Addr() string { return s.addr }

func (s *operatedServer) Kill() error { s.stop(); return nil }

func (s *operatedServer) Start() error { s.listen(s.addr); return nil }

func (s *operatedServer) Restart() error { s.restart(); return nil }

func (s *operatedServer) Backup() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backup, s.events = s.copyDocs(), len(s.oplog)
	return "", nil
}

func (s *operatedServer) Restore(string) error {
	s.stop()
	s.mu.Lock()
	s.docs, s.oplog = s.backup, s.oplog[:s.events]
	s.mu.Unlock()
	s.listen(s.addr)
	return nil
}

func (s *operatedServer) Freeze() error {
	thaw := make(chan struct{})
	s.thaw = thaw
	s.setInterceptor(func(_ string, _, reply bson.D) bson.D {
		<-thaw
		return reply
	})
	return nil
}

func (s *operatedServer) Thaw() {
	s.setInterceptor(nil)
	close(s.thaw)
}

// copyDocs returns a copy of the documents. The caller must hold mu.
func (s *fakeServer) copyDocs() map[string][]bson.D {
	all := maps.Clone(s.docs)
	for name, docs := range all {
		all[name] = slices.Clone(docs)
	}
	return all
}

// rejectWrites makes the server reply to all writes with a failure, or accept them again if reply is
// nil.
func (s *fakeServer) rejectWrites(reply bson.D) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejection = reply
}

// stepDown makes the server a secondary, and another member of its replica set with the same data the
// primary.
func (s *fakeServer) stepDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other.mu.Lock()
	defer s.other.mu.Unlock()
	s.other.docs, s.other.oplog = s.copyDocs(), slices.Clone(s.oplog)
	s.secondary, s.other.secondary = true, false
	for c := range s.conns { // A server that steps down closes its connections.
		c.Close()
	}
}

// addCandidates adds two candidates to e. Each of them connects to the server whose URI uriOf returns.
func (s *operatedServer) addCandidates(e *operators.Election, uriOf func() string) *operatedServer {
	for range 2 {
		c, err := changefeed.NewElection(newStore(e.T, connect(e.T, uriOf(), nil), "c"),
			changefeed.WithHeartbeat(operators.Timeout*4/7), changefeed.WithLogger(e.Logger()))
		require.NoError(e, err)
		e.Add(c)
	}
	return s
}

// TestOperations_OnReplicaSetKeepOneLeader checks that an operator's action, such as a restart from a backup, does not
// lead to two leaders, and that afterwards there is a leader, or the log says why there is none. The server is a fake.
func TestOperations_OnReplicaSetKeepOneLeader(t *testing.T) {
	rejecting := func(name, reason string, reply bson.D) operators.Operation[*operatedServer] {
		return operators.Lasting(name, reason, func(s *operatedServer, on bool) {
			if on {
				s.rejectWrites(reply)
			} else {
				s.rejectWrites(nil)
			}
		})
	}
	operators.Test(t, operators.OfStore(
		operators.Operation[*operatedServer]{Name: "Emptied", Reason: "the record of the election was deleted", Run: func(_ *operators.Election, s *operatedServer) {
			s.execute(bson.D{{Key: "drop", Value: "c"}})
		}},
		operators.Operation[*operatedServer]{Name: "IdleTimeout", Run: func(e *operators.Election, _ *operatedServer) { e.Networks.LimitIdle(operators.Timeout / 8) }},
		operators.Operation[*operatedServer]{Name: "ConnectionsKilled", Run: func(e *operators.Election, _ *operatedServer) { e.Networks.DropRepeatedly() }},
		operators.InShort(rejecting("ReadOnly", "not primary", notPrimary())),
		rejecting("Full", "disk space", failure(14031, "available disk space of 0 bytes is less than required minimum")),
		rejecting("CredentialsRotated", "not authorized", failure(13, "not authorized on test to execute command")),
	), func(e *operators.Election) *operatedServer {
		s := &operatedServer{fakeServer: newFakeServer(e.T)}
		return s.addCandidates(e, func() string {
			return "mongodb://" + e.AddNetwork(s.addr) + "/?directConnection=true&serverSelectionTimeoutMS=5000"
		})
	})
	operators.Test(t, []operators.Operation[*operatedServer]{
		{Name: "FailedOver", Short: true, Run: func(_ *operators.Election, s *operatedServer) { s.stepDown() }},
	}, func(e *operators.Election) *operatedServer {
		s, other := newFakeServer(e.T), newFakeServer(e.T)
		s.other, other.other, other.secondary = other, s, true
		return (&operatedServer{fakeServer: s}).addCandidates(e, s.uri)
	})
}
