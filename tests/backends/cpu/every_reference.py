"""A module that refers to all that LLVM lets code refer to: constants, variables, functions of its
own and of others, tables of addresses, jumps.
"""

EVERYTHING = """
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0], align 64
@counter = internal global i64 0, align 64
@large = internal global [5000 x i8] zeroinitializer, align 64
@seen = global i64 40
@functions = internal constant [2 x ptr] [ptr @half, ptr @sqrt]
@outside = external global i64

declare double @sqrt(double)
declare double @cos(double)
declare double @ours(double)

define internal double @half(double %x) noinline {
  %y = fmul double %x, 0.5
  ret double %y
}

; table[which] * f(x) + counter++ + seen + outside, f by a table of functions
define double @kernel(i64 %which, double %x) {
entry:
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %which
  %factor = load double, ptr %at
  %low = and i64 %which, 1
  %function.at = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %low
  %function = load ptr, ptr %function.at
  %value = call double %function(double %x)
  %product = fmul double %factor, %value
  %count = load i64, ptr @counter
  %next = add i64 %count, 1
  store i64 %next, ptr @counter
  %last = getelementptr i8, ptr @large, i64 4999
  store i8 1, ptr %last
  %seen = load i64, ptr @seen
  %outside = load i64, ptr @outside
  %both = add i64 %seen, %outside
  %sum = add i64 %count, %both
  %number = sitofp i64 %sum to double
  %total = fadd double %product, %number
  ret double %total
}

define double @other(i64 %which, double %x) {
entry:
  switch i64 %which, label %none [
    i64 0, label %zero
    i64 1, label %one
    i64 2, label %two
    i64 3, label %three
    i64 4, label %four
  ]
zero:
  %cosine = call double @cos(double %x)
  ret double %cosine
one:
  %own = call double @ours(double %x)
  ret double %own
two:
  %halved = call double @half(double %x)
  ret double %halved
three:
  %sum = fadd double %x, 3.0
  ret double %sum
four:
  %difference = fsub double %x, 7.0
  ret double %difference
none:
  ret double 0.0
}
"""
