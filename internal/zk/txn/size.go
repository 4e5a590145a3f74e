package txn

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

const (
	// maxBytes is what one transaction may have: a server's jute.maxbuffer is
	// 1048575 by default, and the register and headers need some of it.
	maxBytes = 1<<20 - 4<<10
	// A batch is small beside that, so that nobody else's requests have to wait
	// for long behind it.
	batchBytes = 256 << 10
	batchOps   = 200
)

// size is how many bytes ops take in a request, or why they cannot be sent.
func size(ops []any) (int, error) {
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
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, total)
	}
	return total, nil
}
