// Package kubernetes implements a [changefeed.Store] in a Lease (coordination.k8s.io/v1) of
// Kubernetes. Programs that run in a cluster need no other server for their elections.
//
// # Guarantees
//
// A heartbeat is a patch that contains the resourceVersion and the uid of the Lease; the API server
// applies it only if the Lease still has both. At most one candidate is the leader if the API
// server's storage does not lose acknowledged writes, as etcd does not with its default settings.
// Start cannot check these settings. While the API server does not answer, there is no leader.
//
// # Layout
//
// The fields of a Lease that other programs and kubectl read are those of client-go:
//
//	spec.holderIdentity         the ID of the leader, or null
//	spec.leaseDurationSeconds   the TTL of the record, rounded up, or null
//	spec.renewTime              when the record was written, by the clock of the writer
//	spec.acquireTime            the same for the first write of a leadership
//	spec.leaseTransitions       the number of leaderships
//
// A Lease has no place for an epoch, a sequence number, a term above 2^31-1, a TTL with fractions
// of a second and a nominee. (The API server drops spec.preferredHolder unless a feature gate is
// set, and rejects it without spec.strategy.) So the record is an annotation, as JSON:
//
//	metadata.annotations["go-leaderelection.github.io/record"]
//
// Other annotations, labels and owners are kept. Record.Time is not set, because an API server does not
// return its time.
//
// The election of client-go must not use the same Lease: candidates of this package report
// [changefeed.ErrUnsuitable] if spec.holderIdentity is not the leader of the annotation, and do
// not claim the record.
//
// # Costs
//
// A heartbeat is one request of the leader. Watches deliver it to the followers, which do not read
// while heartbeats arrive; after three seconds without an event ([WithQuiet]) a follower sends a
// request. The watch cache of an API server delivers a write within some tens of milliseconds.
// Every write is a write to the cluster's etcd: use a heartbeat of two seconds or more if there are
// many elections. client-go's default is one every two seconds.
//
// The client does not limit the rate of requests (rest.Config.QPS), and does not repeat requests if
// the API server is overloaded (status 429): the election repeats them itself. Each store has its own
// connection, which it replaces if it has received no answer for three seconds.
//
// # Permissions
//
// The role of candidates needs, in the namespace of the Lease, the verbs get, watch and patch on
// leases of the group coordination.k8s.io, which resourceNames can restrict to the name of the
// Lease, and create without resourceNames. With [WithoutCreate] the verb create is not needed:
// the Lease must exist, and can be empty. The directory deploy/kubernetes contains the manifests.
package kubernetes
