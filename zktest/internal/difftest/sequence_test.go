package difftest

import (
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// TestSequenceOverflow compares what happens when 2³¹ children have been made. A real
// server cannot be told to be there, but its transaction log can: each create in it
// says how many its parent has had.
//
// What many clients, or one that does not wait for answers, get there depends on the
// server's timing, and is not compared: as in a multi it counts on from
// -2147483648 while requests are under way, and falls back when they are done.
func TestSequenceOverflow(t *testing.T) {
	const last = math.MaxInt32 - 2
	parents := []string{"/one", "/multi", "/mixed", "/anew"}
	logs := t.TempDir()
	e := realServer(t, time.Hour, map[string]string{"dataLogDir": logs})
	if err := e.Kill(0); err != nil {
		t.Fatal(err)
	}
	var creates []wire.Request
	for i, p := range parents {
		creates = append(creates, op(wire.Create, p, flags(int32(i+1))), op(wire.Create, p+"/x", flags(last)))
	}
	if err := os.WriteFile(filepath.Join(logs, "version-2", "log.1"), transactionLog(creates), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(0); err != nil {
		t.Fatal(err)
	}
	if err := e.WaitReady(t.Context(), 0); err != nil {
		t.Fatal(err)
	}

	s := embeddedServer(t, time.Hour)
	c, _, err := s.Connect(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range creates {
		if _, err := c.Create(r.Path, []byte{}, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range parents {
		if err := s.SetSequence(path, last); err != nil {
			t.Fatal(err)
		}
	}

	p := newPairOf(t, e, s)
	p.open(0, false, 30*time.Second)
	p.open(1, false, 30*time.Second)
	look := func(path string) {
		p.step(1, false, op(wire.GetChildren2, path, watch))
	}
	next := func(path string) {
		p.step(0, false, op(wire.Create2, path, flags(2)))
		look(filepath.Dir(path))
	}
	look("/one")
	for range 5 {
		next("/one/n-")
	}
	next("/one/another-")
	next("/one/third-")
	p.step(0, false, op(wire.Create, "/one/plain"), op(wire.Delete, "/one/plain"))
	look("/one")

	sequential := op(wire.Create2, "/multi/n-", flags(2))
	p.step(0, false, op(wire.Multi, "", ops(sequential, sequential, sequential, sequential, sequential)))
	look("/multi")
	next("/multi/n-")
	next("/multi/another-")

	sequential.Path = "/mixed/n-"
	p.step(0, false, op(wire.Multi, "", ops(sequential, sequential, sequential, sequential, op(wire.Check, "/none"))))
	next("/mixed/n-")
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Create, "/mixed/a"), op(wire.Create, "/mixed/b"), op(wire.Delete, "/mixed/a"), sequential)))
	look("/mixed")

	// A parent that is made anew counts anew.
	sequential.Path = "/anew/n-"
	p.step(0, false, op(wire.Delete, "/anew/x"))
	p.step(0, false, op(wire.Multi, "", ops(sequential, sequential, sequential, sequential,
		op(wire.Delete, "/anew/n-2147483645"), op(wire.Delete, "/anew/n-2147483646"), op(wire.Delete, "/anew/n-2147483647"),
		op(wire.Delete, "/anew/n--2147483648"), op(wire.Delete, "/anew"), op(wire.Create, "/anew"), sequential, sequential)))
	look("/anew")
}

// transactionLog is a log of creates from the first transaction on, as a server
// writes it. The flags of a create say how many children its parent has had.
func transactionLog(creates []wire.Request) []byte {
	e := wire.Encoder{B: []byte("ZKLG")}
	e.Int(2)  // version
	e.Long(0) // database
	for i, r := range creates {
		var txn wire.Encoder
		txn.Long(0) // session
		txn.Int(0)  // xid
		txn.Long(int64(i + 1))
		txn.Long(time.Now().UnixMilli())
		txn.Int(int32(r.Op))
		txn.String(r.Path)
		txn.Buffer([]byte{})
		txn.ACLs(r.ACL)
		txn.Bool(false) // ephemeral
		txn.Int(r.Flags)
		e.Long(int64(adler32.Checksum(txn.B)))
		e.Buffer(txn.B)
		e.B = append(e.B, 'B')
	}
	return e.B
}
