// Command clientgo is version 2 of a program that replaces its election of client-go: it works only while it holds
// the old Lease and leads the new election.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
	"github.com/go-leaderelection/leaderelection/elector"
)

func main() {
	namespace := flag.String("namespace", "default", "namespace of the Leases")
	host, _ := os.Hostname() // in a pod this is the name of the pod
	id := flag.String("id", host, "ID of this replica, which others see")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := ctrl.GetConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := coordination.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	old := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: *namespace, Name: "report"}, Client: client,
		// A process that has exited, because it could not lead the new election, must not take the Lease again at once
		// under the same identity.
		LockConfig: resourcelock.ResourceLockConfig{Identity: *id + "_" + rand.Text()},
	}
	// The new election needs a Lease of its own, so its name differs from that of the old Lease.
	store, err := kubernetes.NewStore(config, *namespace, "report-election")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	err = lead(ctx, old, func() (leaderelection.Candidate, error) {
		return changefeed.NewElection(store, changefeed.WithID(*id))
	}, report)
	if err != nil {
		log.Fatal("ended: ", err) // the container is started again
	}
}

var errNotElected = fmt.Errorf("this process holds the old Lease, but has not led the new election for %v", patience)

// report is the work of the leader.
func report(ctx context.Context, l *leaderelection.Leadership) error {
	log.Print("leads with token ", l.Token())
	<-ctx.Done()
	return nil
}

// patience is how long a process keeps the old Lease without leading the new election. After that, a process that needs
// only the Lease can lead, for example if the new backend is down. While a process that does not need the Lease leads,
// this one is started again each time, which does no harm.
const patience = time.Minute

// lead calls work while this process holds the old Lease and leads the new election, until ctx is done
// or either of them is lost for good. Then the program must exit.
func lead(ctx context.Context, old resourcelock.Interface, newCandidate func() (leaderelection.Candidate, error),
	work func(context.Context, *leaderelection.Leadership) error,
) error {
	held := make(chan context.Context, 1) // receives a context that is done when the old Lease is lost
	holder, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: old,
		// LeaseDuration must be more than RetryPeriod, plus two times RenewDeadline, plus the 10 s that
		// elector.Lead waits for work. ReleaseOnCancel is not set, because it would release the Lease
		// while work still runs.
		LeaseDuration: 30 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: clientgo.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { held <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	holding, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); holder.Run(holding) }()
	defer func() { stop(); <-ended }()
	select {
	case <-ended: // ctx was done before this process held the Lease
		return nil
	case holding := <-held:
		candidate, err := newCandidate()
		if err != nil {
			return err
		}
		waiting, giveUp := context.WithCancelCause(holding)
		defer giveUp(nil)
		limit := time.AfterFunc(patience, func() { giveUp(errNotElected) })
		err = elector.Lead(waiting, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
			limit.Stop()
			defer limit.Reset(patience)
			return work(ctx, l)
		})
		switch {
		case err != nil || ctx.Err() != nil:
		case holding.Err() != nil:
			err = errors.New("the old Lease was lost")
		default:
			err = context.Cause(waiting)
		}
		return err
	}
}
