module qbus/perf/jobqueues

go 1.26.0
