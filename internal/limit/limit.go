// Package limit contains the time limit that all elections and recipes share.
package limit

import "time"

// Confirm is how long a caller waits for the servers to confirm the end of a candidacy, a hold or a
// delivery, so that everything is over within two seconds. If it is not confirmed in time, the
// request continues in the background.
const Confirm = 1500 * time.Millisecond
