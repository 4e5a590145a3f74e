package txn

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

const (
	// maxBytes limits the operations of one transaction. The default jute.maxbuffer of a server
	// is 1048575 bytes, which also include the write of the record and the headers.
	maxBytes = 1<<20 - 4<<10
	// batchBytes and batchOps limit a request that several transactions share. They are small,
	// so that requests of other users of the connection do not have to wait for long.
	batchBytes = 256 << 10
	batchOps   = 200
)

// Size returns the number of bytes of ops in a request, or the reason why they cannot be
// sent.
func Size(ops []any) (int, error) {
	total := 0
	for _, op := range ops {
		const header, length = 9, 4
		total += header
		switch op := op.(type) {
		case *zk.CreateRequest:
			total += length + len(op.Path) + length + len(op.Data) + length + 4
			for _, acl := range op.Acl {
				total += 4 + length + len(acl.Scheme) + length + len(acl.ID)
			}
		case *zk.SetDataRequest:
			total += length + len(op.Path) + length + len(op.Data) + 4
		case *zk.DeleteRequest:
			total += length + len(op.Path) + 4
		case *zk.CheckVersionRequest:
			total += length + len(op.Path) + 4
		default:
			return 0, fmt.Errorf("%w: %T", ErrOperation, op)
		}
	}
	if total > maxBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, total, maxBytes)
	}
	return total, nil
}
