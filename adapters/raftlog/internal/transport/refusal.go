package transport

import (
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// refusalFrame is the first byte of a frame by which the dialing side rejects the other side before it
// closes the connection. The reason and the text follow. The first byte of a frame of a Transport's
// user is never refusalFrame.
const refusalFrame = 0xff

// sendRefusal sends the reason of a rejection to the other side, and closes the connection.
func sendRefusal(conn *link.Conn, purpose link.Purpose, err error) {
	defer conn.Close()
	var refused *link.RefusedError
	if purpose != link.PurposeRaft || !errors.As(err, &refused) {
		return
	}
	conn.SetTimeouts(0, writeTimeout)
	_ = conn.WriteFrame(append([]byte{refusalFrame, byte(refused.Reason)}, refused.Text...))
}

// decodeRefusal returns the refusal in a frame of sendRefusal, and nil for any other frame.
func decodeRefusal(frame []byte) *link.RefusedError {
	if len(frame) < 2 || frame[0] != refusalFrame {
		return nil
	}
	return &link.RefusedError{Reason: link.Reason(frame[1]), Text: string(frame[2:]), Proven: true}
}
