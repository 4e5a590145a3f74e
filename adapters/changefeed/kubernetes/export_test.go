package kubernetes

// Decode exports decode to the tests.
var Decode = decode
