// Package limit contains the time limit that all elections and recipes share.
package limit

import "time"

// Confirm is the time in which the servers should confirm that a candidacy, a hold or a delivery has
// ended. After that the caller stops waiting, and the request continues in the background. So the
// whole call takes less than two seconds.
const Confirm = 1500 * time.Millisecond
