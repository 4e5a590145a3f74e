package ensemble

import (
	"encoding/binary"
	"fmt"
	"io"
)

// copyGreeting shortens the greeting with which a server opens an election connection. The greeting contains a
// negative protocol version, the number of the server, and its election address. A server with a greater number
// would connect to this address, and thereby bypass the proxies between the servers. Servers also understand the
// older form of the greeting, which contains only the number: the other server then connects to the address in its
// configuration.
func copyGreeting(to io.Writer, from io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	if int64(binary.BigEndian.Uint64(head[:])) < 0 {
		var rest struct {
			Server int64
			Size   int32
		}
		if err := binary.Read(from, binary.BigEndian, &rest); err != nil {
			return err
		}
		if rest.Size < 0 || rest.Size > 4096 {
			return fmt.Errorf("read the greeting of a server: invalid length of %d bytes", rest.Size)
		}
		if _, err := io.CopyN(io.Discard, from, int64(rest.Size)); err != nil {
			return err
		}
		binary.BigEndian.PutUint64(head[:], uint64(rest.Server))
	}
	_, err := to.Write(head[:])
	return err
}
