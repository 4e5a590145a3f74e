// Package controllerruntime runs the controllers of a manager of
// [sigs.k8s.io/controller-runtime] only while a candidate leads, whatever the candidate's
// election is on: ZooKeeper, etcd, a Lease, a database or a Raft log.
//
//	candidate, err := changefeed.NewElection(store)
//	...
//	mgr, err := controllerruntime.NewManager(config, ctrl.Options{Scheme: scheme}, candidate)
//	...
//	err = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}).Complete(reconciler)
//	...
//	err = mgr.Start(ctrl.SetupSignalHandler()) // the program exits when Start returns
//
// # Behaviour
//
// While the candidate follows, the manager serves probes, metrics and webhooks, and fills its
// caches. The candidate joins the election when the caches are filled, so a leader begins to work
// immediately. When the leadership ends, the contexts of everything that the manager runs are
// cancelled at once, and Start returns, before another candidate can lead. When the program is
// stopped, the manager waits for its controllers, and then the candidate resigns, so that the next
// candidate leads immediately.
//
// [Leadership] returns the leadership of the context of a reconciler, whose token lets a database
// or another API reject what a former leader has sent late.
//
// # Why there is no resourcelock
//
// client-go's leaderelection, which controller-runtime uses by default, continues to lead until
// RenewDeadline has passed, even if its lock reports that the leadership is over. With
// ReleaseOnCancel it then waits for the release of the lock, for up to RenewDeadline again, before
// it stops the controllers. An implementation of resourcelock.Interface by a candidate cannot change
// that: in measurements, two managers worked at the same time for up to 6.6 s. So this package
// cancels the contexts of the controllers itself.
package controllerruntime
