package main

import (
	"context"
	"net/http/httptest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The defaults of Kubernetes' components. If another lease duration is measured, the other two durations keep
// their ratio to the lease duration.
const (
	defaultLeaseDuration = 15 * time.Second
	defaultRenewDeadline = 10 * time.Second
	defaultRetryPeriod   = 2 * time.Second
)

// scaleDuration returns d, one of the default durations, multiplied by the ratio of leaseDuration to the default
// lease duration.
func scaleDuration(d, leaseDuration time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(leaseDuration) / float64(defaultLeaseDuration))
}

// onKubernetes uses client-go's leaderelection like an operator for Kubernetes.
func onKubernetes(leaseDuration time.Duration) systemStarter {
	return func(context.Context) (candidateJoiner, func(), error) {
		server := httptest.NewServer(newLeases())
		join := func(name string) (*candidate, error) {
			n := new(network)
			client, err := coordination.NewForConfig(&rest.Config{
				Host: server.URL, Dial: n.DialContext, Timeout: scaleDuration(defaultRenewDeadline, leaseDuration) / 2,
				ContentConfig: rest.ContentConfig{ContentType: jsonType, AcceptContentTypes: jsonType},
			})
			if err != nil {
				return nil, err
			}
			c := &candidate{leads: make(chan time.Time, 1), crash: n.crash}
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "election"}, Client: client,
					LockConfig: resourcelock.ResourceLockConfig{Identity: name},
				},
				LeaseDuration:   leaseDuration,
				RenewDeadline:   scaleDuration(defaultRenewDeadline, leaseDuration),
				RetryPeriod:     scaleDuration(defaultRetryPeriod, leaseDuration),
				ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { c.leads <- time.Now() },
					OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithCancel(context.Background())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				elector.Run(ctx)
			}()
			c.resign = func() error {
				cancel()
				<-stopped
				return nil
			}
			c.close = func() { _ = c.resign() }
			return c, nil
		}
		return join, server.Close, nil
	}
}
