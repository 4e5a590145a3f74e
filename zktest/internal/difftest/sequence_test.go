package difftest

import (
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// TestCompare_SequenceNumbersOverflowEqually checks that sequence numbers are equal after 2³¹ creates. A test
// cannot set the counter of a real server, but the server restores the counter from its transaction log, in which
// each create contains the number of earlier creates below the parent.
//
// The test does not compare the numbers of concurrent requests, because they depend on the timing of the real
// server: while requests are in flight, it continues with -2147483648 as in a multi, and afterwards it repeats
// 2147483647.
func TestCompare_SequenceNumbersOverflowEqually(t *testing.T) {
	const last = math.MaxInt32 - 2
	parents := []string{"/one", "/multi", "/mixed", "/recreated"}
	logs := t.TempDir()
	e := startRealServer(t, time.Hour, map[string]string{"dataLogDir": logs})
	require.NoError(t, e.Kill(0))
	var creates []wire.Request
	for i, p := range parents {
		creates = append(creates, request(wire.Create, p, withFlags(int32(i+1))), request(wire.Create, p+"/x", withFlags(last)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(logs, "version-2", "log.1"), transactionLog(creates), 0o644))
	require.NoError(t, e.Start(0))
	require.NoError(t, e.WaitReady(t.Context(), 0))

	s := startEmbeddedServer(t, time.Hour)
	c, _, err := s.Connect(30 * time.Second)
	require.NoError(t, err)
	for _, r := range creates {
		_, err = c.Create(r.Path, []byte{}, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for _, path := range parents {
		require.NoError(t, s.SetSequence(path, last))
	}

	p := newPairWith(t, e, s)
	p.connectClient(0, false, 30*time.Second)
	p.connectClient(1, false, 30*time.Second)
	compareChildren := func(path string) {
		p.compare(1, false, request(wire.GetChildren2, path, withWatch))
	}
	compareCreate := func(path string) {
		p.compare(0, false, request(wire.Create2, path, withFlags(2)))
		compareChildren(filepath.Dir(path))
	}
	compareChildren("/one")
	for range 5 {
		compareCreate("/one/n-")
	}
	compareCreate("/one/another-")
	compareCreate("/one/third-")
	p.compare(0, false, request(wire.Create, "/one/plain"), request(wire.Delete, "/one/plain"))
	compareChildren("/one")

	sequential := request(wire.Create2, "/multi/n-", withFlags(2))
	p.compare(0, false, request(wire.Multi, "", withOps(sequential, sequential, sequential, sequential, sequential)))
	compareChildren("/multi")
	compareCreate("/multi/n-")
	compareCreate("/multi/another-")

	sequential.Path = "/mixed/n-"
	p.compare(0, false, request(wire.Multi, "", withOps(sequential, sequential, sequential, sequential, request(wire.Check, "/none"))))
	compareCreate("/mixed/n-")
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Create, "/mixed/a"), request(wire.Create, "/mixed/b"), request(wire.Delete, "/mixed/a"), sequential)))
	compareChildren("/mixed")

	// Create a parent again, whose counter must restart.
	sequential.Path = "/recreated/n-"
	p.compare(0, false, request(wire.Delete, "/recreated/x"))
	p.compare(0, false, request(wire.Multi, "", withOps(sequential, sequential, sequential, sequential,
		request(wire.Delete, "/recreated/n-2147483645"), request(wire.Delete, "/recreated/n-2147483646"), request(wire.Delete, "/recreated/n-2147483647"),
		request(wire.Delete, "/recreated/n--2147483648"), request(wire.Delete, "/recreated"), request(wire.Create, "/recreated"), sequential, sequential)))
	compareChildren("/recreated")
}

// transactionLog returns a transaction log with creates, as a server writes it. The field Flags of a request is
// the number of earlier creates below the parent.
func transactionLog(creates []wire.Request) []byte {
	e := wire.Encoder{B: []byte("ZKLG")}
	e.Int(2)  // the version of the format
	e.Long(0) // the ID of the database
	for i, r := range creates {
		var txn wire.Encoder
		txn.Long(0) // the session of the transaction
		txn.Int(0)  // the xid of the request
		txn.Long(int64(i + 1))
		txn.Long(time.Now().UnixMilli())
		txn.Int(int32(r.Op))
		txn.String(r.Path)
		txn.Buffer([]byte{})
		txn.ACLs(r.ACL)
		txn.Bool(false) // the znode is not ephemeral
		txn.Int(r.Flags)
		e.Long(int64(adler32.Checksum(txn.B)))
		e.Buffer(txn.B)
		e.B = append(e.B, 'B')
	}
	return e.B
}
